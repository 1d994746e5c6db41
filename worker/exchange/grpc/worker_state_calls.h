#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_WORKER_STATE_CALLS_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_WORKER_STATE_CALLS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "worker/exchange/core/worker_state/worker_state.h"
#include "worker/exchange/grpc/persistent_calls.h"
#include "worker/exchange/grpc/shard_control.h"

namespace evenshard {

// Passes on a WorkerState from a worker that lives to one that was started again
// (ParameterServer.SendWorkerState).
class WorkerStateCalls {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;   // must outlive this
    const PersistentCalls* calls = nullptr;  // must outlive this
    // The calls to a slot's process, or null.
    std::function<std::shared_ptr<ShardControl>(int slot)> control;
  };

  explicit WorkerStateCalls(Options options) : options_(std::move(options)) {}

  // Receives what the others have before exchange `iteration`. Waits until one of them waits there,
  // and tries again with another one, from `place` on, if the sender is lost. `place` is called in
  // a thread of its own. Errors: that of `place`; those of PersistentCalls; FAILED_PRECONDITION if
  // the sender refuses, or if nobody has the state and the run cannot go back; NOT_FOUND if nobody
  // has it and a worker can go on without (config.local); OUT_OF_RANGE if the others have completed
  // the exchange, with what this worker had pushed before it was started again.
  absl::Status Receive(uint64_t iteration, const WorkerState::Place& place);

  // This worker waits in exchange `iteration`, or before it: if another one needs its state, calls
  // `make` and sends that. Returns whether another worker is waited for until it has its state.
  // Blocks for a second at most if nobody needs it, and otherwise calls `meanwhile` from time to
  // time, in this thread.
  bool Offer(uint64_t iteration, WorkerState::Make make, absl::FunctionRef<void()> meanwhile);

 private:
  // Calls `each` for all slots at the same time, with a token that ends it as soon as one of them
  // fails, nothing has moved for long, or `check` fails, which this thread calls meanwhile. Returns
  // the first error.
  absl::Status AtAllSlots(
      const std::atomic<int64_t>& moved, const std::function<absl::Status()>& check,
      const std::function<absl::Status(ShardControl&, int, const std::stop_token&)>& each) const;
  absl::Status ReceiveOnce(uint64_t iteration, uint64_t ticket, const WorkerState::Place& place);
  absl::Status Send(ShardControl& slot_0, uint64_t ticket, const WorkerState& state,
                    absl::FunctionRef<void()> meanwhile);

  const Options options_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_WORKER_STATE_CALLS_H_
