#ifndef EVENSHARD_COMMON_CONTROL_VIEW_EVENT_LOG_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_EVENT_LOG_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/view.pb.h"

namespace evenshard {

// Collects events for the operator, and how long each event held the run up. Has a bound: the
// oldest events are forgotten if nobody takes them. Not thread-safe.
class EventLog {
 public:
  // Adds an event that held nobody up.
  void Add(std::string what, absl::Time now);

  // Adds an event that began at `since` and is over when everyone follows the view `number`.
  void AddUntil(uint64_t number, std::string what, absl::Time since);

  // Everyone follows the view `number` or a later one.
  void Followed(uint64_t number, absl::Time now);

  // Returns the events that are over, in the order in which they ended, and forgets them.
  std::vector<RecoveryEvent> Take();

 private:
  struct Open {
    uint64_t number;
    std::string what;
    absl::Time since;
  };

  void End(std::string what, absl::Time since, absl::Time now);

  std::deque<Open> open_;
  std::deque<RecoveryEvent> over_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_EVENT_LOG_H_
