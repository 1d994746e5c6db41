#ifndef EVENSHARD_SERVER_SHARD_STALL_LOG_H_
#define EVENSHARD_SERVER_SHARD_STALL_LOG_H_

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/base/doubling_notice.h"

namespace evenshard {

// Decides when the log says that an update waits for a worker: after the update has waited for
// kQuiet, again whenever the wait has doubled, and when it is over. Not thread-safe.
class StallLog {
 public:
  static constexpr absl::Duration kQuiet = absl::Seconds(5);

  struct Event {
    bool over = false;      // the wait of the last event is over
    absl::Duration waited;  // so far, or in all if it is over
  };

  // Returns what the log should say now. `since` is when the update that has waited longest began
  // to wait, or nullopt if no update waits. The caller calls this about once a second.
  std::optional<Event> Observe(std::optional<absl::Time> since, absl::Time now) {
    if (since != since_) {
      const absl::Time began = std::exchange(since_, since).value_or(now);
      if (std::exchange(notice_, Notice(kQuiet)).Over()) {
        return Event{.over = true, .waited = now - began};
      }
    }
    if (!since.has_value() || !notice_.Grew(now - *since)) return std::nullopt;
    return Event{.waited = now - *since};
  }

 private:
  using Notice = DoublingNotice<absl::Duration>;

  std::optional<absl::Time> since_;  // the last argument of Observe
  Notice notice_{kQuiet};            // of that wait
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SHARD_STALL_LOG_H_
