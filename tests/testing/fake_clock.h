#ifndef EVENSHARD_TESTS_TESTING_FAKE_CLOCK_H_
#define EVENSHARD_TESTS_TESTING_FAKE_CLOCK_H_

#include <algorithm>
#include <stop_token>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// A clock that stands still until Advance is called or a thread sleeps. A sleep sets the clock to
// its deadline and returns at once. Thread-safe.
class FakeClock final : public Clock {
 public:
  absl::Time Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  bool SleepUntil(absl::Time deadline, const std::stop_token& stop) const override {
    if (stop.stop_requested()) return false;
    absl::MutexLock lock(&mutex_);
    now_ = std::max(now_, deadline);
    return true;
  }
  void Advance(absl::Duration duration) {
    absl::MutexLock lock(&mutex_);
    now_ += duration;
  }

 private:
  mutable absl::Mutex mutex_;
  mutable absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_FAKE_CLOCK_H_
