#ifndef EVENSHARD_TESTS_SIMULATION_MACHINES_NODE_CLOCK_H_
#define EVENSHARD_TESTS_SIMULATION_MACHINES_NODE_CLOCK_H_

#include <stop_token>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "tests/simulation/machines/event_loop.h"

namespace evenshard {

// The clock of a simulated machine, as RealClock reads it: a process takes the machine's time of
// day when it starts, and follows the machine's monotonic clock from there. The monotonic clock has
// a rate of its own, and the time of day can be set.
class NodeClock final : public Clock {
 public:
  // `loop` must outlive the clock.
  explicit NodeClock(const EventLoop* loop) : loop_(*loop) {}

  absl::Time Now() const override { return booted_ + rate_ * (loop_.Now() - booted_at_); }
  bool SleepUntil(absl::Time, const std::stop_token&) const override { return false; }

  // A process starts.
  void Boot() {
    booted_at_ = loop_.Now();
    booted_ = TimeOfDay();
  }
  absl::Time TimeOfDay() const { return loop_.Now() + ahead_; }
  void Set(absl::Duration by) { ahead_ += by; }
  void SetRate(double rate) { rate_ = rate; }

 private:
  const EventLoop& loop_;
  double rate_ = 1;
  absl::Duration ahead_;
  absl::Time booted_at_;
  absl::Time booted_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_MACHINES_NODE_CLOCK_H_
