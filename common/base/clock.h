#ifndef EVENSHARD_COMMON_BASE_CLOCK_H_
#define EVENSHARD_COMMON_BASE_CLOCK_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace evenshard {

// Tells the time, and sleeps. It is injected, so that tests control the time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
  // Returns true at `deadline`, or false as soon as `stop` is requested.
  virtual bool SleepUntil(absl::Time deadline, const std::stop_token& stop) const = 0;
};

// Starts at the time of day and then follows the monotonic clock, so that waits keep their length
// when the time of day is set.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - monotonic_start_);
  }

  bool SleepUntil(absl::Time deadline, const std::stop_token& stop) const override {
    constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 100);  // fits chrono's nanoseconds
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any never;
    never.wait_until(
        lock, stop,
        monotonic_start_ + absl::ToChronoNanoseconds(std::min(deadline - start_, kLongest)),
        [] { return false; });
    return !stop.stop_requested();
  }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point monotonic_start_ = std::chrono::steady_clock::now();
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_CLOCK_H_
