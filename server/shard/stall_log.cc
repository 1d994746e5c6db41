#include "server/shard/stall_log.h"

#include <utility>

namespace evenshard {

std::optional<StallLog::Event> StallLog::Observe(std::optional<absl::Time> since, absl::Time now) {
  if (since != since_) {
    const absl::Time began = std::exchange(since_, since).value_or(now);
    if (std::exchange(notice_, Notice(kQuiet)).Over()) {
      return Event{.over = true, .waited = now - began};
    }
  }
  if (!since.has_value() || !notice_.Grew(now - *since)) return std::nullopt;
  return Event{.waited = now - *since};
}

}  // namespace evenshard
