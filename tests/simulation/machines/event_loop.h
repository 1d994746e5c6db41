#ifndef EVENSHARD_TESTS_SIMULATION_MACHINES_EVENT_LOOP_H_
#define EVENSHARD_TESTS_SIMULATION_MACHINES_EVENT_LOOP_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <stop_token>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// The time of a simulation and everything that is going to happen in it. Events at the same time
// happen in the order in which they were added. Used by one thread.
class EventLoop final : public Clock {
 public:
  // What is left does not happen, and adds nothing while it is destroyed.
  ~EventLoop() override {
    is_over_ = true;
    events_.clear();
  }

  absl::Time Now() const override { return now_; }
  // Whatever runs in a simulation must not block.
  bool SleepUntil(absl::Time, const std::stop_token&) const override { return false; }

  absl::Duration Elapsed() const { return now_ - start_; }

  void After(absl::Duration delay, std::function<void()> run) { At(now_ + delay, std::move(run)); }
  void At(absl::Time time, std::function<void()> run) {
    if (is_over_) return;
    events_.emplace(std::pair(std::max(time, now_), added_++), std::move(run));
  }

  // Runs the next event. Returns false if there is none.
  bool Step() {
    if (events_.empty()) return false;
    auto next = events_.extract(events_.begin());
    now_ = next.key().first;
    ++steps_;
    next.mapped()();
    return true;
  }

  uint64_t steps() const { return steps_; }

 private:
  const absl::Time start_ = absl::FromUnixSeconds(1'700'000'000);
  absl::Time now_ = start_;
  uint64_t added_ = 0;
  uint64_t steps_ = 0;
  bool is_over_ = false;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> events_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_MACHINES_EVENT_LOOP_H_
