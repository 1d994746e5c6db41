#ifndef EVENSHARD_TESTS_SIMULATION_CALM_H_
#define EVENSHARD_TESTS_SIMULATION_CALM_H_

#include <algorithm>
#include <vector>

#include "absl/time/time.h"

namespace evenshard {

// The stretches of a simulated run in which nothing kept it from going on.
class Calm {
 public:
  // How it is now. It has been calm since the call before if it was so then.
  void Note(bool is_calm, absl::Time now) {
    if (is_calm && !was_calm_) stretches_.push_back({now, now});
    if (is_calm) stretches_.back().end = now;
    was_calm_ = is_calm;
  }

  // Returns how long the longest stretch is, as far as it lies between the two times.
  absl::Duration Longest(absl::Time from, absl::Time to) const {
    absl::Duration longest;
    for (const Stretch& stretch : stretches_) {
      longest = std::max(longest, std::min(stretch.end, to) - std::max(stretch.begin, from));
    }
    return longest;
  }

 private:
  struct Stretch {
    absl::Time begin;
    absl::Time end;
  };

  bool was_calm_ = false;
  std::vector<Stretch> stretches_;  // the oldest first
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_CALM_H_
