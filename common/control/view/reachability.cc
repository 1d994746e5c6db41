#include "common/control/view/reachability.h"

#include <algorithm>

namespace evenshard {
namespace {

constexpr int kFirstPause = 4;  // times the patience
constexpr absl::Duration kLongestPause = absl::Minutes(10);

}  // namespace

void Reachability::Note(const View& view, absl::Time now) {
  std::map<std::pair<uint64_t, int>, Missing> missing;
  const auto note = [&](const StartTable::Process& from, int slot, const ProcessId& to) {
    const std::pair key(from.present, slot);
    const auto before = missing_.find(key);
    const bool was_missing =
        before != missing_.end() && before->second.incarnation == to.incarnation();
    const bool follows = from.state.view() == view.number();
    if (follows && !std::count(from.state.unreachable().begin(), from.state.unreachable().end(),
                               static_cast<uint32_t>(slot))) {
      return;
    }
    if (was_missing) {
      missing.insert(*before);
    } else if (follows && processes_[to.process()].state.view() == view.number()) {
      // Before, it may not have known that it should answer.
      missing[key] = {to.incarnation(), now};
    }
  };
  for (int s = 0; s < view.slot_size(); ++s) {
    const SlotView& slot = view.slot(s);
    if (processes_.IsAlive(slot.primary()) && processes_.IsAlive(slot.replica())) {
      note(processes_[slot.primary().process()], s, slot.replica());
    }
  }
  missing_ = std::move(missing);
}

std::optional<absl::Time> Reachability::MissesReplica(const SlotView& slot, int index,
                                                      absl::Time now) const {
  const auto found = missing_.find({slot.primary().incarnation(), index});
  if (found == missing_.end() || found->second.incarnation != slot.replica().incarnation() ||
      now < found->second.since + patience_) {
    return std::nullopt;
  }
  return found->second.since;
}

void Reachability::KeepApart(uint64_t from, uint64_t to, absl::Time now) {
  std::erase_if(apart_,
                [now](const auto& each) { return now >= each.second.until + each.second.pause; });
  if (AreApart(from, to, now)) return;  // because of another slot
  Apart& apart = apart_[{from, to}];
  apart.pause = std::min(std::max(2 * apart.pause, kFirstPause * patience_), kLongestPause);
  apart.until = now + apart.pause;
}

bool Reachability::AreApart(uint64_t from, uint64_t to, absl::Time now) const {
  const auto found = apart_.find({from, to});
  return found != apart_.end() && now < found->second.until;
}

}  // namespace evenshard
