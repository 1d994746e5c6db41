#ifndef EVENSHARD_TESTS_TESTING_HAND_CLOCK_H_
#define EVENSHARD_TESTS_TESTING_HAND_CLOCK_H_

#include <stop_token>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// A clock that only Advance moves. A thread that sleeps waits until the clock has come to its
// deadline. Thread-safe.
class HandClock final : public Clock {
 public:
  absl::Time Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  bool SleepUntil(absl::Time deadline, const std::stop_token& stop) const override {
    absl::MutexLock lock(&mutex_);
    const auto is_over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stop.stop_requested() || now_ >= deadline;
    };
    while (!mutex_.AwaitWithTimeout(absl::Condition(&is_over), absl::Milliseconds(10))) {
    }
    return !stop.stop_requested();
  }
  void Advance(absl::Duration duration) {
    absl::MutexLock lock(&mutex_);
    now_ += duration;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_HAND_CLOCK_H_
