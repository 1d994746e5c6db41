#include "worker/exchange/core/stall_watch.h"

#include <algorithm>

namespace evenshard {

void StallWatch::Look(absl::Time now) {
  // If the looks were far apart, as on a machine that was suspended, only two periods count. The
  // shards did not run in that time either, or their answers are yet to be read.
  step_ = std::clamp(now - looked_, absl::ZeroDuration(), 2 * period_);
  looked_ = now;
}

std::optional<Stall> StallWatch::Moved(uint64_t iteration, uint64_t moves) {
  const Stall over = {.iteration = iteration_, .lasted = lasted_, .is_news = news_.Over()};
  if (iteration != iteration_) {
    news_ = DoublingNotice(std::max(kNewsAfter, 2 * longest_));
    longest_ = absl::ZeroDuration();
  }
  iteration_ = iteration;
  moves_ = moves;
  lasted_ = absl::ZeroDuration();
  return over.is_news ? std::optional(over) : std::nullopt;
}

absl::Duration StallWatch::Stood() {
  lasted_ += step_;
  longest_ = std::max(longest_, lasted_);
  return lasted_;
}

}  // namespace evenshard
