#include "tools/launch/restart_policy.h"

#include <algorithm>

namespace evenshard {

absl::Time RestartPolicy::Ended(absl::Time now) {
  early_failures_ = now < started_ + kEarly ? early_failures_ + 1 : 0;
  if (early_failures_ >= kMostEarlyFailures) return absl::InfiniteFuture();
  const int doublings = std::max(early_failures_ - 1, 0);
  return now + std::min(kFirstWait * (1 << doublings), kLongestWait);
}

}  // namespace evenshard
