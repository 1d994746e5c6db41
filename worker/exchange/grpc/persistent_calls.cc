#include "worker/exchange/grpc/persistent_calls.h"

#include <algorithm>

namespace evenshard {
namespace {

// All workers mostly ask at the same time.
constexpr absl::Duration kFirstPause = absl::Microseconds(200);
constexpr absl::Duration kLongestPause = absl::Milliseconds(50);

}  // namespace

bool PersistentCalls::MayComeBack(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

absl::Status PersistentCalls::Repeat(
    absl::FunctionRef<absl::StatusOr<bool>(ShardControl&)> once) const {
  absl::Duration pause = kFirstPause;
  while (true) {
    if (const absl::Status failure = options_.failure(); !failure.ok()) return failure;
    if (options_.stop.stop_requested()) return absl::CancelledError("told to stop");
    if (const std::shared_ptr<ShardControl> control = options_.control(); control != nullptr) {
      const absl::StatusOr<bool> done = once(*control);
      if (done.ok() && *done) return absl::OkStatus();
      if (!done.ok() && !MayComeBack(done.status())) return done.status();
    }
    options_.clock->SleepUntil(options_.clock->Now() + pause, options_.stop);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace evenshard
