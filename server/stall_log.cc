#include "server/stall_log.h"

#include <utility>

namespace ps {

std::optional<StallLog::Event> StallLog::Observe(std::optional<absl::Time> since, absl::Time now) {
  if (told_since_.has_value() && since != told_since_) {
    return Event{.over = true, .waited = now - *std::exchange(told_since_, std::nullopt)};
  }
  if (!since.has_value()) return std::nullopt;
  const absl::Duration waited = now - *since;
  if (waited < (told_since_.has_value() ? next_ : kQuiet)) return std::nullopt;
  told_since_ = since;
  next_ = 2 * waited;
  return Event{.waited = waited};
}

}  // namespace ps
