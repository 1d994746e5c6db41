#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_PERSISTENT_CALLS_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_PERSISTENT_CALLS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "worker/exchange/grpc/shard_control.h"

namespace evenshard {

// One worker's calls to slot 0 that go on whichever process has the slot, for as long as the run
// does: what they wait for comes from other workers. Thread-safe.
class PersistentCalls {
 public:
  struct Options {
    const Clock* clock = nullptr;                            // must outlive this
    std::function<std::shared_ptr<ShardControl>()> control;  // slot 0's, or null
    std::function<absl::Status()> failure;                   // why nothing comes any more, or OK
    std::function<uint64_t()> generation;                    // ExchangeCore::generation()
    std::stop_token stop;
  };

  // How long a process that took slot 0 over is told once what it may lack.
  static constexpr absl::Duration kRetellTimeout = absl::Milliseconds(500);

  explicit PersistentCalls(Options options) : options_(std::move(options)) {}

  // Calls `once` with slot 0's process of the time until it returns true, again after an answer
  // that says so or where that process is gone. Errors: CANCELLED soon after `stop` is requested;
  // `failure`; any other of `once`.
  absl::Status Repeat(absl::FunctionRef<absl::StatusOr<bool>(ShardControl&)> once) const;

  // Whether an error may be that of a process that is gone, and the next one answers.
  static bool MayComeBack(const absl::Status& status);

  std::shared_ptr<ShardControl> control() const { return options_.control(); }
  absl::Status failure() const { return options_.failure(); }
  uint64_t generation() const { return options_.generation(); }
  const Clock& clock() const { return *options_.clock; }

 private:
  const Options options_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_PERSISTENT_CALLS_H_
