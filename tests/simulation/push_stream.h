#ifndef EVENSHARD_TESTS_SIMULATION_PUSH_STREAM_H_
#define EVENSHARD_TESTS_SIMULATION_PUSH_STREAM_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/chunk_queue.h"
#include "server/rpc/pending_reply.h"
#include "server/rpc/read_gate.h"
#include "server/shard/shard.h"
#include "server/update/gradient.h"
#include "tests/simulation/context.h"

namespace evenshard {

// A shard's end of an Exchange stream, as server/rpc/exchange_stream.h is over gRPC.
class PushStream final : public ReplySink, public std::enable_shared_from_this<PushStream> {
 public:
  // How answers reach the worker, at side 0 of the connection.
  using Deliver =
      std::function<void(const ParameterHeader& header, const std::string& data, int primary)>;

  struct Options {
    Context* context = nullptr;
    std::shared_ptr<Connection> connection;
    std::shared_ptr<Shard> shard;
    std::shared_ptr<WorkerSession> session;
    int primary = 0;  // the oracle's number
    NodeRef node;
  };

  explicit PushStream(Options options);
  ~PushStream() override;

  // Where to deliver answers. Called once, before any push.
  void SetDeliver(Deliver deliver) { deliver_ = std::move(deliver); }
  // A push has arrived. It is read when the gate lets the stream read.
  void Push(const GradientHeader& header, std::shared_ptr<const std::string> data);
  void Reply(uint32_t chunk, uint64_t iteration, bool dropped) override;
  void End(const absl::Status& status);

 private:
  struct Arrived {
    GradientHeader header;
    std::shared_ptr<const std::string> data;
  };

  // Reads what has arrived, as far as the gate lets it.
  void Read();
  void ResumeRead();
  void Take(GradientHeader header, std::shared_ptr<const std::string> data);
  // Returns what keeps a push's data, which counts as held until then.
  std::shared_ptr<const void> Hold(std::shared_ptr<const std::string> data);
  bool HoldsReplies() const { return hold_ && !gate_.IsStoppedBy(replies_.size()); }
  void WriteLater();
  void WriteNext();
  void CloseSession();

  const Options options_;
  Deliver deliver_;
  ReadGate gate_;
  uint32_t rank_ = 0;
  bool reads_ = true;  // a read is under way
  std::deque<Arrived> arrived_;
  ChunkQueue<PendingReply> replies_;
  std::map<uint32_t, uint64_t> owed_;  // by chunk: the version that the worker has
  bool hold_ = false;
  bool writing_ = false;
  bool ended_ = false;
  bool closed_ = false;  // the session, which stays open until the last write is over
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_PUSH_STREAM_H_
