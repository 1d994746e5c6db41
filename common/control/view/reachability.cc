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
    if (!processes_.IsAlive(slot.primary())) continue;
    if (processes_.IsAlive(slot.replica())) {
      note(processes_[slot.primary().process()], s, slot.replica());
    }
    for (int r = 0; r < view.worker_size(); ++r) {
      const bool is_silent = missing_.empty() && workers_[r].state.unreachable().empty();
      if (view.worker(r).state() != WorkerView::MEMBER || is_silent) continue;
      note(workers_[r], s, slot.primary());
    }
  }
  missing_ = std::move(missing);
}

absl::Time Reachability::MissingSince(uint64_t from, int slot, uint64_t to) const {
  const auto found = missing_.find({from, slot});
  const bool is_missing = found != missing_.end() && found->second.incarnation == to;
  return is_missing ? found->second.since : absl::InfiniteFuture();
}

std::optional<uint32_t> Reachability::WorkerWithout(const View& view, int slot,
                                                    absl::Time since) const {
  const uint64_t primary = view.slot(slot).primary().incarnation();
  for (int r = 0; r < view.worker_size() && !missing_.empty(); ++r) {
    if (MissingSince(view.worker(r).incarnation(), slot, primary) <= since) return r;
  }
  return std::nullopt;
}

bool Reachability::MostAreWithout(const View& view, int slot) const {
  const uint64_t primary = view.slot(slot).primary().incarnation();
  int without = 0;
  for (const WorkerView& worker : view.worker()) {
    if (worker.state() != WorkerView::MEMBER) continue;
    without += MissingSince(worker.incarnation(), slot, primary) < absl::InfiniteFuture() ? 1 : -1;
  }
  return without > 0;
}

void Reachability::KeepApart(uint64_t one, uint64_t other, absl::Time now) {
  std::erase_if(apart_,
                [now](const auto& each) { return now >= each.second.until + each.second.pause; });
  if (AreApart(one, other, now)) return;  // because of another slot
  Apart& apart = apart_[std::minmax(one, other)];
  apart.pause = std::min(std::max(2 * apart.pause, kFirstPause * patience_), kLongestPause);
  apart.until = now + apart.pause;
}

bool Reachability::AreApart(uint64_t one, uint64_t other, absl::Time now) const {
  const auto found = apart_.find(std::minmax(one, other));
  return found != apart_.end() && now < found->second.until;
}

}  // namespace evenshard
