#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_MEAN_CALLS_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_MEAN_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/grpc/shard_control.h"

namespace evenshard {

// One worker's means over the workers (ParameterServer.Mean). Slot 0 forgets them with its process,
// so that a worker which has the latest one tells the next process of it: another may still ask.
class MeanCalls {
 public:
  struct Options {
    const Clock* clock = nullptr;                            // must outlive this
    std::function<std::shared_ptr<ShardControl>()> control;  // slot 0's, or null
    std::function<absl::Status()> failure;                   // why nothing comes any more, or OK
    std::function<uint64_t()> view;  // the number of the view that is followed
    std::stop_token stop;
  };

  explicit MeanCalls(Options options) : options_(std::move(options)) {}

  // Gives a value at `place` of the program, before exchange `iteration`, and waits for the mean,
  // without a limit as long as the exchange has not failed. Not thread-safe. Errors:
  // CANCELLED soon after `stop` is requested; the shard's, with its name; `failure`.
  absl::StatusOr<std::vector<double>> Ask(uint64_t iteration, const std::string& place,
                                          const std::vector<double>& value);

  // Tells slot 0's process the latest mean, once in each view. Called from time to time. Blocks for
  // half a second at most. Thread-safe.
  void Retell();

 private:
  const Options options_;
  std::optional<uint64_t> iteration_;  // of the latest Ask
  uint32_t number_ = 0;                // how many were before it at that iteration

  absl::Mutex mutex_;
  std::optional<MeanRequest> latest_ ABSL_GUARDED_BY(mutex_);  // with the mean
  uint64_t told_in_ ABSL_GUARDED_BY(mutex_) = 0;               // the view
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_MEAN_CALLS_H_
