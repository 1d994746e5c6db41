#include "server/update/push_pacing.h"

#include <algorithm>
#include <limits>

namespace evenshard {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
// The number of average steps without a move after which the slowest worker counts as computing.
constexpr int64_t kPatience = 4;
// The weight of the newest step in the average: 1 / kMemory.
constexpr int64_t kMemory = 8;
constexpr int64_t kShortestStep = kMillisecond / 4;
constexpr int64_t kLongestStep = 250 * kMillisecond;

}  // namespace

PushPacing::PushPacing(int workers, int64_t lead_bytes, const Clock* clock)
    : lead_bytes_(lead_bytes),
      clock_(clock),
      pushed_(workers),
      moved_at_(absl::ToUnixNanos(clock->Now())),
      step_(kMillisecond) {}

int64_t PushPacing::Least() const {
  int64_t least = pushed_[0];
  for (const auto& pushed : pushed_) least = std::min<int64_t>(least, pushed);
  return least;
}

void PushPacing::Pushed(uint32_t worker, int64_t bytes) {
  if (pushed_[worker].fetch_add(bytes) > floor_) return;
  absl::MutexLock lock(&mutex_);
  const int64_t before = floor_;
  // Repeated because another worker may pass the old floor in the meantime, and return above.
  for (int64_t least = Least(); floor_ < least; least = Least()) floor_ = least;
  if (floor_ == before) return;
  const int64_t now = absl::ToUnixNanos(clock_->Now());
  // A pause, for example to compute, is no step, so its length is limited.
  const int64_t step = std::min(now - moved_at_, 2 * kPatience * step_);
  step_ = std::clamp(step_ + (step - step_) / kMemory, kShortestStep, kLongestStep);
  moved_at_ = now;
}

void PushPacing::Restart(const std::vector<std::optional<int64_t>>& pushed) {
  absl::MutexLock lock(&mutex_);
  for (size_t rank = 0; rank < pushed_.size(); ++rank) {
    pushed_[rank] = pushed[rank].value_or(std::numeric_limits<int64_t>::max() / 2);
  }
  floor_ = Least();
  moved_at_ = absl::ToUnixNanos(clock_->Now());
}

absl::Duration PushPacing::Wait(uint32_t worker) const {
  if (pushed_[worker] - floor_ <= lead_bytes_) return absl::ZeroDuration();
  const int64_t step = step_;
  const int64_t left = moved_at_ + kPatience * step - absl::ToUnixNanos(clock_->Now());
  return absl::Nanoseconds(std::clamp<int64_t>(left, 0, step));
}

}  // namespace evenshard
