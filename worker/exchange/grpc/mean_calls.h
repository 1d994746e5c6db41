#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_MEAN_CALLS_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_MEAN_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/grpc/persistent_calls.h"

namespace evenshard {

// One worker's means over the workers (ParameterServer.Mean). Slot 0 forgets them with its process,
// so that a worker tells the next process those that come before its present exchange: another one,
// which was started again, may still ask for them.
class MeanCalls {
 public:
  // `calls` must outlive this. `view` is the number of the view that is followed, and `control`
  // slot 0's process in it, or null, also when the worker has left and connects to none any more.
  MeanCalls(const PersistentCalls* calls, std::function<uint64_t()> view,
            std::function<std::shared_ptr<ShardControl>()> control)
      : calls_(*calls), view_(std::move(view)), control_(std::move(control)) {}

  // Gives a value at `place` of the program, before exchange `iteration`, and waits for the mean,
  // without a limit as long as the exchange has not failed. Not thread-safe. Errors:
  // those of PersistentCalls; the shard's, with its name.
  absl::StatusOr<std::vector<double>> Ask(uint64_t iteration, const std::string& place,
                                          const std::vector<double>& value);

  // The workers that wait in a mean before exchange `iteration`, to which this worker gave no
  // value, and where they do: "worker 0 at train.py:40". Empty if slot 0 knows of nobody. Blocks
  // for half a second at most.
  std::string WhoWaits(uint64_t iteration);

  // Forgets what was asked before the run went back, since the same exchanges come again. Not
  // called during Ask. Waits for a Retell.
  void Forget();

  // Tells slot 0's process the means that it may lack, once in each view. Called from time to time:
  // it blocks for a second at most, and goes on in the next call. Thread-safe.
  void Retell();

 private:
  // Adds a mean that slot 0's process has answered in the view.
  void Know(MeanRequest mean, uint64_t view);

  const PersistentCalls& calls_;
  const std::function<uint64_t()> view_;
  const std::function<std::shared_ptr<ShardControl>()> control_;
  std::optional<uint64_t> iteration_;  // of the latest Ask
  uint32_t number_ = 0;                // how many were before it at that iteration

  absl::Mutex telling_;  // acquired before mutex_
  absl::Mutex mutex_;
  // The latest of iteration_, with the means, and how many of them slot 0's process knows in a
  // view.
  std::deque<MeanRequest> known_ ABSL_GUARDED_BY(mutex_);
  size_t told_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t told_in_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_MEAN_CALLS_H_
