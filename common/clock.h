#ifndef PS_COMMON_CLOCK_H_
#define PS_COMMON_CLOCK_H_

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace ps {

// Tells the time. Injected, so that tests decide what time it is. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace ps

#endif  // PS_COMMON_CLOCK_H_
