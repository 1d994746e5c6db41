#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_CONTROL_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_CONTROL_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "grpcpp/channel.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/worker_usage.pb.h"
#include "worker/exchange/core/slot_calls.h"

namespace evenshard {

// One worker's calls to one shard other than Exchange. They have a connection of their own, so that
// they never queue behind data. Every call blocks, and every error begins with the shard's name.
// Thread-safe.
class ShardControl {
 public:
  // Control calls to a shard that is up take milliseconds.
  static constexpr absl::Duration kTimeout = absl::Seconds(5);

  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the calls
    int slot = 0;
    std::string address;
    bool names_slot = false;  // says to the process which slot it means (a run with views)
    int rank = 0;
    uint64_t incarnation = 0;
    const Clock* clock = nullptr;  // must outlive the calls
    std::stop_token stop;          // makes Pull return CANCELLED soon
  };

  explicit ShardControl(const Options& options);

  const std::string& address() const { return options_.address; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  std::string name() const;  // "shard 1 (10.0.0.2:50051)"
  // Returns the error with the shard's name before its message.
  absl::Status Named(const absl::Status& status) const;

  // Waits until the shard accepts connections, and logs that it waits, and why, if that takes a
  // while.
  // Errors: CANCELLED soon after `stop` is requested.
  absl::Status AwaitUp(const std::stop_token& stop);

  // Takes the rank for this incarnation. Errors: the shard's refusal (see Shard::Join);
  // FAILED_PRECONDITION if another shard answers; CANCELLED soon after `stop` is requested. Unlike
  // those of the other calls they do not begin with the shard's name.
  absl::StatusOr<JoinResponse> Join(const JoinRequest& request, const std::stop_token& stop);

  // Calls `take` for every chunk of the shard, in order, with an array of its state: see PullShard.
  // Errors: that of `take`, or
  // DEADLINE_EXCEEDED after limits.exchange_seconds.
  absl::Status Pull(
      int array,
      const std::function<absl::Status(const Chunk& chunk, const ParameterChunk& message)>& take);

  // Tells the shard what this worker uses. Returns CANCELLED soon after `stop` is requested.
  absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop);

  // Asks for a mean over the workers, once. Returns CANCELLED soon after `stop` is requested.
  absl::StatusOr<MeanResponse> Mean(MeanRequest request, absl::Duration timeout);

  // Keep and ask for registered state (ParameterServer.KeepState, TakeState), once.
  absl::Status KeepState(KeepStateRequest request, absl::Duration timeout);
  absl::StatusOr<TakeStateResponse> TakeState(uint64_t iteration);

  // The calls of a transfer of worker state (WorkerStateCalls), each once. HasWorkerState ends the
  // asking.
  absl::StatusOr<AskWorkerStateResponse> AskWorkerState(uint64_t iteration, uint64_t ticket);
  absl::Status HasWorkerState(uint64_t ticket);
  absl::StatusOr<OfferWorkerStateResponse> OfferWorkerState(OfferWorkerStateRequest request,
                                                            absl::Duration timeout);
  // Streams over connections of their own, until `next` returns false or `take` an error. `next`
  // gets the last piece back, to fill it anew. CANCELLED soon after `stop` is requested.
  absl::Status SendWorkerState(uint64_t ticket,
                               const std::function<bool(WorkerStatePiece* piece)>& next,
                               const std::stop_token& stop);
  absl::Status ReceiveWorkerState(
      uint64_t ticket, const std::function<absl::Status(const WorkerStatePiece& piece)>& take,
      const std::stop_token& stop);

  // Gives up the rank with `message` (ExchangeCore::LeaveMessage), with the retries of `call`. Does
  // nothing if Join was never called.
  absl::Status Leave(LeaveRequest message, SlotLeave call);
  // Returns whether the shard has confirmed a Leave.
  bool has_left() const { return has_left_; }

 private:
  // What a call fails with that does not wait for the connection.
  std::string WhyNotUp() const;
  // Says who asks, and which slot.
  template <typename Request>
  void Sign(Request* request) const {
    request->set_worker(options_.rank);
    request->set_incarnation(options_.incarnation);
    if (options_.names_slot) request->set_slot(options_.slot);
  }

  const Options options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<ParameterServer::Stub> stub_;
  // The shard may have taken the worker even if the answer to Join was lost.
  std::atomic<bool> join_called_{false};
  std::atomic<uint64_t> join_view_{0};  // of the last Join
  std::atomic<bool> has_left_{false};
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_CONTROL_H_
