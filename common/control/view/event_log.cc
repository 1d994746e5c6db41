#include "common/control/view/event_log.h"

#include <utility>

namespace evenshard {
namespace {

constexpr size_t kMostEvents = 1000;

}  // namespace

void EventLog::Add(std::string what, absl::Time now) { End(std::move(what), now, now); }

void EventLog::AddUntil(uint64_t number, std::string what, absl::Time since) {
  // Only a run in which no process follows the views any more gets so many of them.
  if (open_.size() == kMostEvents) open_.pop_front();
  open_.push_back({number, std::move(what), since});
}

void EventLog::Followed(uint64_t number, absl::Time now) {
  std::deque<Open> still_open;
  for (Open& event : open_) {
    if (event.number <= number) {
      End(std::move(event.what), event.since, now);
    } else {
      still_open.push_back(std::move(event));
    }
  }
  open_ = std::move(still_open);
}

std::vector<RecoveryEvent> EventLog::Take() {
  std::vector<RecoveryEvent> taken(over_.begin(), over_.end());
  over_.clear();
  return taken;
}

void EventLog::End(std::string what, absl::Time since, absl::Time now) {
  if (over_.size() == kMostEvents) over_.pop_front();
  RecoveryEvent event;
  event.set_unix_seconds(absl::ToDoubleSeconds(now - absl::UnixEpoch()));
  event.set_what(std::move(what));
  event.set_seconds(absl::ToDoubleSeconds(now - since));
  over_.push_back(std::move(event));
}

}  // namespace evenshard
