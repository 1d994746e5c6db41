#ifndef EVENSHARD_TOOLS_LAUNCH_RESTART_POLICY_H_
#define EVENSHARD_TOOLS_LAUNCH_RESTART_POLICY_H_

#include <algorithm>

#include "absl/time/time.h"

namespace evenshard {

// Decides when a process that has died is started again, and when it is given up. One object serves
// one place of the run, for all processes that take it one after another. Not thread-safe.
class RestartPolicy {
 public:
  // A process that ends within this time of its start has failed early.
  static constexpr absl::Duration kEarly = absl::Seconds(10);
  // How many times in a row a process may fail early, the last time included.
  static constexpr int kMostEarlyFailures = 5;
  // The wait before the process is started again. It doubles with each early failure in a row.
  static constexpr absl::Duration kFirstWait = absl::Milliseconds(100);

  void Started(absl::Time now) { started_ = now; }

  // The process has ended, though it is needed. Returns when it is to be started again, or
  // InfiniteFuture if it has ended early too often.
  absl::Time Ended(absl::Time now) {
    early_failures_ = now < started_ + kEarly ? early_failures_ + 1 : 0;
    if (early_failures_ >= kMostEarlyFailures) return absl::InfiniteFuture();
    const int doublings = std::max(early_failures_ - 1, 0);
    return now + kFirstWait * (1 << doublings);
  }

  // Likewise, and counts a death.
  absl::Time Died(absl::Time now) {
    ++deaths_;
    return Ended(now);
  }

  int deaths() const { return deaths_; }

 private:
  absl::Time started_ = absl::InfinitePast();
  int early_failures_ = 0;
  int deaths_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_RESTART_POLICY_H_
