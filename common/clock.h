#ifndef PS_COMMON_CLOCK_H_
#define PS_COMMON_CLOCK_H_

#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ps {

// Tells the time. Injected, so that tests decide what time it is. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The time of day at its making, and from then on as the monotonic clock goes: waiting
// times stay right when somebody sets the time of day.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override {
    return start_ + absl::FromChrono(std::chrono::steady_clock::now() - monotonic_start_);
  }

 private:
  const absl::Time start_ = absl::Now();
  const std::chrono::steady_clock::time_point monotonic_start_ = std::chrono::steady_clock::now();
};

}  // namespace ps

#endif  // PS_COMMON_CLOCK_H_
