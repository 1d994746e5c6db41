#ifndef EVENSHARD_TESTS_FUZZ_PS_CORE_H_
#define EVENSHARD_TESTS_FUZZ_PS_CORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/float_buffer.h"
#include "common/placement/planned_config.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "proto/parameter_server.pb.h"
#include "server/recovery/slot_host.h"
#include "server/rpc/chunk_source.h"
#include "server/shard/shard.h"
#include "tests/fuzz/ps_core_streams.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {

// A config for the fuzzer of a ps process.
struct FuzzedRun {
  PlannedConfig config;
  bool has_views = false;
};
// One for each policy, and for each thing that a worker's, a peer's or the coordinator's message
// may be about.
const std::vector<FuzzedRun>& FuzzedRuns();

// A ps process without gRPC, in one thread and by a clock of its own, with all who call it. What
// they send follows from an input: sensible messages, most of which are wrong in a few fields.
//
// The process is primary of slot 0. In a run with views it also has the replica of slot 1.
class FuzzedPs final : public ReplicaTransport, public AgreementTransport {
 public:
  FuzzedPs(const FuzzedRun* run, FuzzedDataProvider* input);
  ~FuzzedPs() override;

  // Does what the input says next.
  void Step();
  // Sensible workers come in the place of all others. Aborts unless they can train, or are told why
  // the run has failed.
  void TrainOnceMore();

 private:
  static constexpr uint64_t kSelf = 10;   // the incarnation of this process, which has index 0
  static constexpr uint64_t kOther = 11;  // and of the other one, which has index 1

  // What a worker offers to share. The input writes to it whenever it likes.
  struct Memory {
    FloatBuffer gradients;
    FloatBuffer parameters;
  };
  // What has joined as a worker, with a stream.
  struct Stream {
    std::shared_ptr<Shard> shard;
    std::shared_ptr<WorkerSession> session;
    std::shared_ptr<FuzzedSink> sink;
  };

  std::unique_ptr<ReplicaStream> Open(int slot, int lane, uint64_t view, const ProcessId& primary,
                                      const ProcessId& copy,
                                      ReplicaStream::Receiver* receiver) override;
  void Disconnect(int slot) override {}
  void Report(const ProcessId& decider, const AgreementReport& report,
              AgreementDecider::Answer answer) override;

  // What workers do. `changes` is how many fields are changed at most.
  void Join(uint32_t rank, int changes);
  void Push(uint32_t rank, int changes);
  void Leave(uint32_t rank);
  void AskFor(uint32_t rank);        // what is beside the exchange
  void Train(int changes);           // one push of each chunk of each worker
  void Offer(JoinRequest* request);  // memory
  void WriteToMemory();
  GradientChunk GradientOf(const Stream& stream, StoredChunk& chunk);
  void Send(Stream& stream, const GradientChunks& message);
  void CloseStream(Stream& stream);
  // What readers do.
  void Pull();
  void Snapshot();
  void ReadOn();
  void CheckStats();
  void CheckFinite();  // the parameters, unless the run has failed
  // What other shards and the coordinator do.
  void Agree(int changes);
  void Replicate();
  void Confirm();
  void Adopt(int changes);
  void PassTime(absl::Duration duration);
  void Work();

  std::shared_ptr<Shard> shard() const { return host_->Primary(0); }
  uint32_t Rank() { return input_.ConsumeIntegralInRange<uint32_t>(0, config_.workers() - 1); }

  const FuzzedRun& run_;
  const PlannedConfig& config_;
  FuzzedDataProvider& input_;
  FakeClock clock_;
  View view_;  // the latest sensible one
  uint64_t incarnations_ = 100;
  uint64_t reports_ = 0;
  std::vector<Memory> memory_;
  std::map<uint32_t, Stream> streams_;          // by rank: the latest
  std::deque<AgreementDecider::Answer> asked_;  // of other processes
  std::vector<ToReplica*> to_replica_;
  std::unique_ptr<SlotHost> host_;
  std::vector<std::unique_ptr<ChunkSource>> readers_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_FUZZ_PS_CORE_H_
