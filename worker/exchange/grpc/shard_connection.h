#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_CONNECTION_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/net/abandoned_channels.h"
#include "common/placement/planned_config.h"
#include "grpcpp/channel.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/core/exchange_transport.h"
#include "worker/exchange/grpc/shard_control.h"
#include "worker/exchange/grpc/shard_stream.h"

namespace evenshard {

// A worker's connection to one slot over gRPC: the control calls, and the streams of the latest
// attempt to connect. A thread of its own makes the attempts. Thread-safe.
class ShardConnection {
 public:
  // Receives the events of the connection. Called from the connection's thread and gRPC's.
  class Handler : public ShardStream::Handler {
   public:
    // The attempt has succeeded. Ended comes for an attempt that has not, and when a stream ends.
    virtual void Joined(int slot, uint64_t attempt, const JoinResponse& response) = 0;
  };

  struct Options {
    ShardControl::Options control;  // without the address, which each attempt has
    // The worker's buffers, offered at each Join to a shard of this host. Empty: none are offered.
    std::optional<SharedBuffers> buffers = {};
    Handler* handler = nullptr;  // must outlive the connection
  };

  explicit ShardConnection(const Options& options);
  // Ends the streams and the attempt.
  ~ShardConnection();

  // See ExchangeTransport.
  void Connect(const ExchangeTransport::Attempt& attempt);
  void Disconnect();
  void Wake();

  // Waits until there is no stream and no attempt. REQUIRES: Disconnect was the last request.
  void AwaitDisconnected();
  // Tells the shard on all streams that there are no more pushes. REQUIRES: every push has been
  // answered.
  void CloseStreams();

  // The calls to the process where the slot was at the last attempt. Null if there was none.
  std::shared_ptr<ShardControl> control() const;
  // The calls to the process at an address, if it is another one by now; "" for the same. A worker
  // that leaves makes no attempt any more.
  std::shared_ptr<ShardControl> ControlAt(const std::string& address) const;

 private:
  void Run();
  void Try(ExchangeTransport::Attempt attempt, const std::stop_token& stop);
  // Ends all streams and waits until they have ended.
  void EndStreams();
  void SetControl(const std::string& address);

  // A stream, and its connection unless that is of a unix socket.
  struct Lane {
    std::shared_ptr<grpc::Channel> channel;
    std::unique_ptr<ShardStream> stream;
  };

  const Options options_;
  AbandonedChannels abandoned_;  // of the thread

  mutable absl::Mutex mutex_;  // no other lock is acquired under it
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_request_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<ExchangeTransport::Attempt> requested_ ABSL_GUARDED_BY(mutex_);  // else disconnect
  std::stop_source attempt_stop_ ABSL_GUARDED_BY(mutex_);  // of the attempt under way
  bool is_disconnected_ ABSL_GUARDED_BY(mutex_) = true;
  std::shared_ptr<ShardControl> control_ ABSL_GUARDED_BY(mutex_);

  absl::Mutex streams_mutex_;  // held while the streams are told something
  std::vector<Lane> lanes_ ABSL_GUARDED_BY(streams_mutex_);

  std::thread thread_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_CONNECTION_H_
