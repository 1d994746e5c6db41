#ifndef PS_SERVER_STALL_LOG_H_
#define PS_SERVER_STALL_LOG_H_

#include <optional>

#include "absl/time/time.h"

namespace ps {

// Decides when an operator is told that updates wait for a worker: when one has waited for
// kQuiet, again each time that the wait has doubled, and when it is over. Not thread-safe.
class StallLog {
 public:
  static constexpr absl::Duration kQuiet = absl::Seconds(5);

  struct Event {
    bool over = false;      // the wait that was told of is over
    absl::Duration waited;  // so far, or in all
  };

  // `since`: when the update that has waited longest began to wait; nothing where none waits. To be
  // called about every second. Returns what is to be told now.
  std::optional<Event> Observe(std::optional<absl::Time> since, absl::Time now);

 private:
  std::optional<absl::Time> told_since_;  // of the wait that was told of last
  absl::Duration next_;  // how long that one will have waited when it is told again
};

}  // namespace ps

#endif  // PS_SERVER_STALL_LOG_H_
