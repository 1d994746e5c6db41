// What the training thread waits for in a round, and how long that may take, for RingRound.

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {
namespace {

constexpr absl::Duration kWhileWaitingPeriod = absl::Milliseconds(100);

}  // namespace

uint32_t RingRound::Remaining(const Wait& wait) const {
  if (!is_begun_) return wait.until_sent ? unsent_ : 0;
  const uint32_t remaining = norm_.is_missing() ? 1 : 0;
  if (wait.layer < 0) return remaining + incomplete_ + (wait.until_sent ? unsent_ : 0);
  return remaining + incomplete_of_layer_[wait.layer];
}

bool RingRound::HasLayer(int layer) const {
  absl::MutexLock lock(&mutex_);
  return Remaining({.layer = layer}) == 0;
}

absl::Status RingRound::Forsaken() const {
  {
    absl::MutexLock lock(&mutex_);
    if (!predecessor_finished_ || !is_begun_ || sent_until_ > work_.iteration) {
      return absl::OkStatus();
    }
  }
  return PredecessorEnded();
}

absl::Status RingRound::PredecessorEnded() const {
  absl::MutexLock lock(&mutex_);
  const uint64_t iterations = sent_until_ - std::min(sent_until_, assignments_);
  return absl::FailedPreconditionError(absl::StrCat(
      options_.predecessor, " has finished after ", iterations, " iterations, and worker ",
      options_.rank, " goes on; allowed: the same number of iterations in all workers"));
}

absl::Status RingRound::AwaitLayer(int layer) { return Await({.layer = layer}); }

absl::Status RingRound::AwaitAll() { return Await({.until_sent = true}); }

absl::Status RingRound::Await(const Wait& wait) {
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  // The layers of the segments that are waited for. The norm, without which no parameters come, is
  // that of all layers.
  int first = 0;
  int last = static_cast<int>(is_pushed_.size()) - 1;
  if (wait.layer >= 0 && !norm_.clips()) {
    first = last = wait.layer;
    for (const uint32_t id : plan_.segments_of_layer(wait.layer)) {
      first = std::min(first, plan_.segments()[id].first_layer);
      last = std::max(last, plan_.segments()[id].last_layer);
    }
  }
  for (int layer = first; is_begun_ && layer <= last; ++layer) {
    if (!plan_.segments_of_layer(layer).empty() && !is_pushed_[layer]) {
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", layer, " has not been pushed, and is waited for"));
    }
  }
  wait_ = wait;
  ++moves_;
  const auto is_over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !failure_.ok() || Remaining(*wait_) == 0;
  };
  const absl::Duration period =
      options_.while_waiting == nullptr ? absl::InfiniteDuration() : kWhileWaitingPeriod;
  while (!mutex_.AwaitWithTimeout(absl::Condition(&is_over), period)) {
    mutex_.Unlock();
    options_.while_waiting();
    mutex_.Lock();
  }
  wait_.reset();
  ++moves_;
  RETURN_IF_ERROR(failure_);
  if (is_begun_ && incomplete_ == 0 && !norm_.is_missing()) {
    is_begun_ = false;
    if (work_.assigns) ++assignments_;
    ++work_.iteration;
  }
  return absl::OkStatus();
}

std::optional<Stall> RingRound::CheckProgress(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  watch_.Look(now);
  if (!failure_.ok()) return std::nullopt;
  const uint64_t iteration = work_.iteration - assignments_;
  if (!wait_.has_value() || moves_ != watch_.moves()) return watch_.Moved(iteration, moves_);
  const absl::Duration lasted = watch_.Stood();
  const std::string missing =
      incomplete_ == 0 && norm_.is_missing()
          ? absl::StrCat(options_.predecessor, " has not sent all of the gradient's norm")
      : incomplete_ == 0
          ? absl::StrCat(unsent_, " chunks have not been sent")
          : absl::StrCat(options_.predecessor, " has sent nothing, and ", incomplete_, " of ",
                         segments_.size(), " chunks are missing");
  if (lasted < std::min(StallWatch::kNewsAfter, limit_)) return std::nullopt;
  return Stall{.iteration = iteration,
               .lasted = lasted,
               .missing = missing,
               .is_news = lasted >= StallWatch::kNewsAfter && watch_.IsNews()};
}

}  // namespace evenshard
