#include "common/control/view/slot_coordinator.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// How many roles a process has. Each is a slot in its memory.
struct Load {
  int primaries = 0;
  int all = 0;
};
constexpr int kMostRoles = 2;

std::vector<Load> Loads(const View& view, int processes) {
  std::vector<Load> loads(processes);
  for (const SlotView& slot : view.slot()) {
    ++loads[slot.primary().process()].primaries;
    ++loads[slot.primary().process()].all;
    if (slot.has_replica()) ++loads[slot.replica().process()].all;
  }
  return loads;
}

void RemoveCopy(SlotView* slot) {
  slot->clear_replica();
  slot->set_replica_is_complete(false);
  slot->set_handing_over(false);
}

bool Contains(const google::protobuf::RepeatedField<uint32_t>& slots, int slot) {
  return std::find(slots.begin(), slots.end(), static_cast<uint32_t>(slot)) != slots.end();
}

}  // namespace

SlotCoordinator::SlotCoordinator(int slots, bool has_copies, bool deposes,
                                 const StartTable* processes, Reachability* reachability,
                                 EventLog* events)
    : slots_(slots),
      has_copies_(has_copies),
      processes_(*processes),
      reachability_(*reachability),
      deposes_(deposes),
      events_(*events) {}

bool SlotCoordinator::HasEnoughProcesses() const {
  int missing = 0;
  int spares = 0;
  for (int p = 0; p < processes_.size(); ++p) {
    if (p < slots_ && !processes_.IsAlive(p)) ++missing;
    if (p >= slots_ && processes_.IsAlive(p)) ++spares;
  }
  return missing <= spares;
}

void SlotCoordinator::AssignAll(View* next) {
  loss_.clear();
  lost_since_ = absl::InfiniteFuture();
  const int count = processes_.size();
  next->clear_slot();
  int spare = slots_;
  for (int s = 0; s < slots_; ++s) {
    int primary = s;
    if (!processes_.IsAlive(s)) {
      while (!processes_.IsAlive(spare)) ++spare;
      primary = spare++;
    }
    SlotView* slot = next->add_slot();
    SetProcess(primary, slot->mutable_primary());
    if (!has_copies_) continue;
    int copy = (primary + 1) % count;
    while (!processes_.IsAlive(copy)) copy = (copy + 1) % count;
    if (copy == primary) continue;
    SetProcess(copy, slot->mutable_replica());
    // Both make the state from the same seed or checkpoint.
    slot->set_replica_is_complete(true);
  }
}

void SlotCoordinator::ReplaceGone(const View& view, absl::Time now, View* next) {
  TakeReports(view, now, next);
  std::map<uint32_t, std::string> effects;  // by the process that is gone
  for (int s = 0; s < next->slot_size(); ++s) {
    SlotView* slot = next->mutable_slot(s);
    if (slot->has_replica() && !processes_.IsAlive(slot->replica())) {
      absl::StrAppend(&effects[slot->replica().process()], "; slot ", s, " has no replica now");
      RemoveCopy(slot);
    }
    if (slot->has_primary() && processes_.IsAlive(slot->primary())) continue;
    if (slot->replica_is_complete()) {
      absl::StrAppend(&effects[slot->primary().process()], "; ps ", slot->replica().process(),
                      " took slot ", s, " over");
      *slot->mutable_primary() = slot->replica();
    } else if (slot->has_primary()) {
      const uint32_t gone = slot->primary().process();
      loss_ = absl::StrCat("ps ", gone, " ", processes_[gone].reason,
                           ", and no process has a replica of slot ", s);
      lost_since_ = std::min(lost_since_, processes_[gone].gone_since);
      slot->clear_primary();
    } else if (loss_.empty()) {
      loss_ = absl::StrCat("no process has a replica of slot ", s);
      lost_since_ = now;
    }
    RemoveCopy(slot);
  }
  for (const auto& [gone, effect] : effects) {
    events_.AddUntil(view.number() + 1,
                     absl::StrCat("ps ", gone, " ", processes_[gone].reason, effect),
                     processes_[gone].gone_since);
  }
}

void SlotCoordinator::TakeReports(const View& view, absl::Time now, View* next) {
  for (int s = 0; s < view.slot_size(); ++s) {
    const SlotView& slot = view.slot(s);
    if (!slot.has_primary() || !slot.has_replica() || !processes_.IsAlive(slot.primary())) continue;
    const ProcessState& state = processes_[slot.primary().process()].state;
    // What it says of an earlier view may be about another replica.
    if (state.view() != view.number()) continue;
    const uint32_t copy = slot.replica().process();
    const absl::Time missing =
        reachability_.MissingSince(slot.primary().incarnation(), s, slot.replica().incarnation());
    if (now >= missing + reachability_.patience()) {
      Part(view, s, missing, now, next);
      continue;
    }
    if (!slot.replica_is_complete() && Contains(state.filled(), s)) {
      next->mutable_slot(s)->set_replica_is_complete(true);
      events_.Add(absl::StrCat("ps ", copy, " has a whole replica of slot ", s), now);
    }
    if (slot.handing_over() && Contains(state.handed_over(), s)) {
      SlotView* changed = next->mutable_slot(s);
      changed->mutable_primary()->Swap(changed->mutable_replica());
      changed->set_handing_over(false);
      events_.AddUntil(view.number() + 1,
                       copy == static_cast<uint32_t>(s)
                           ? absl::StrCat("ps ", s, " is back and holds slot ", s, " again")
                           : absl::StrCat("ps ", copy, " relieved ps ", slot.primary().process(),
                                          " of slot ", s),
                       std::min(now, hands_over_since_));
      hands_over_since_ = absl::InfiniteFuture();
    }
  }
}

// Ends the tie of a primary and its replica, which cannot reach each other. The replica has every
// update that was answered so far, and none of those that follow.
void SlotCoordinator::Part(const View& view, int index, absl::Time since, absl::Time now,
                           View* next) {
  const SlotView& slot = view.slot(index);
  SlotView* changed = next->mutable_slot(index);
  const std::string what =
      absl::StrCat("ps ", slot.primary().process(), " cannot reach ps ", slot.replica().process());
  std::string effect = absl::StrCat("; slot ", index, " has no replica now");
  reachability_.KeepApart(slot.primary().incarnation(), slot.replica().incarnation(), now);
  if (deposes_ && slot.replica_is_complete() && reachability_.MostAreWithout(view, index)) {
    // It is the primary that is cut off. It answers nobody without receipts of its replica.
    reachability_.KeepApart(Reachability::kWorkers, slot.primary().incarnation(), now);
    *changed->mutable_primary() = slot.replica();
    absl::StrAppend(&effect, "; ps ", slot.replica().process(), " took slot ", index, " over");
  }
  RemoveCopy(changed);
  events_.AddUntil(view.number() + 1, what + effect, since);
}

void SlotCoordinator::Improve(absl::Time now, View* next) {
  if (!has_copies_) return;
  GiveCopies(now, next);
  if (next->worker_set_changes()) return;
  BeginHandingOver(now, next);
  MoveReplica(now, next);
}

void SlotCoordinator::GiveCopies(absl::Time now, View* next) const {
  const int count = processes_.size();
  for (int s = 0; s < slots_; ++s) {
    SlotView* slot = next->mutable_slot(s);
    if (slot->has_replica()) continue;
    const std::vector<Load> loads = Loads(*next, count);
    // The slot's own process comes first, because it can take the slot again; then the less loaded
    // one, and among equals the one that has the replica at the start.
    const auto rank = [&](int p) {
      return std::tuple(p != s, loads[p].all, p != (s + 1) % count, p);
    };
    int best = -1;
    for (int p = 0; p < count; ++p) {
      if (!processes_.IsAlive(p) || static_cast<uint32_t>(p) == slot->primary().process()) continue;
      if (reachability_.AreApart(slot->primary().incarnation(), processes_[p].present, now))
        continue;
      if (loads[p].all >= kMostRoles) continue;
      if (best < 0 || rank(p) < rank(best)) best = p;
    }
    if (best < 0) best = MakeRoom(slot->primary(), now, next);
    if (best >= 0) SetProcess(best, slot->mutable_replica());
  }
}

// Moves a replica from a process that could have that of another primary's slot, and has no room,
// to one that has. Returns the process that has room now, or -1.
int SlotCoordinator::MakeRoom(const ProcessId& primary, absl::Time now, View* next) const {
  const std::vector<Load> loads = Loads(*next, processes_.size());
  for (SlotView& slot : *next->mutable_slot()) {
    const ProcessId holder = slot.replica();
    if (!slot.replica_is_complete() || slot.handing_over() ||
        holder.process() == primary.process() ||
        reachability_.AreApart(primary.incarnation(), holder.incarnation(), now)) {
      continue;
    }
    for (int p = 0; p < processes_.size(); ++p) {
      if (!processes_.IsAlive(p) || static_cast<uint32_t>(p) == slot.primary().process() ||
          loads[p].all >= kMostRoles ||
          reachability_.AreApart(slot.primary().incarnation(), processes_[p].present, now)) {
        continue;
      }
      RemoveCopy(&slot);
      SetProcess(p, slot.mutable_replica());
      return static_cast<int>(holder.process());
    }
  }
  return -1;
}

// Gives a process that answers for no slot a replica of a slot of one that answers for several, so
// that the slot can be handed over to it. The slot has no complete replica meanwhile.
void SlotCoordinator::MoveReplica(absl::Time now, View* next) const {
  for (const SlotView& slot : next->slot()) {
    if (!slot.replica_is_complete() || slot.handing_over()) return;
  }
  const std::vector<Load> loads = Loads(*next, processes_.size());
  for (int p = 0; p < processes_.size(); ++p) {
    if (!processes_.IsAlive(p) || loads[p].primaries > 0 || loads[p].all >= kMostRoles) continue;
    if (reachability_.AreApart(Reachability::kWorkers, processes_[p].present, now)) continue;
    int best = -1;
    for (int s = 0; s < slots_; ++s) {
      const uint32_t primary = next->slot(s).primary().process();
      if (loads[primary].primaries < 2) continue;
      if (reachability_.AreApart(processes_[primary].present, processes_[p].present, now)) continue;
      // Its own slot at best, and at worst one that is at its own process.
      const auto rank = [&](int slot) {
        return std::pair(slot != p,
                         next->slot(slot).primary().process() == static_cast<uint32_t>(slot));
      };
      if (best < 0 || rank(s) < rank(best)) best = s;
    }
    if (best < 0) return;
    SlotView* slot = next->mutable_slot(best);
    RemoveCopy(slot);
    SetProcess(p, slot->mutable_replica());
    return;
  }
}

// Whether the process is getting a replica of its own slot, which it will take then.
bool SlotCoordinator::IsBeingFilled(const View& view, const ProcessId& process) const {
  if (process.process() >= static_cast<uint32_t>(slots_)) return false;
  const SlotView& own = view.slot(process.process());
  return !own.replica_is_complete() && own.replica().process() == process.process() &&
         own.has_replica();
}

bool SlotCoordinator::CanMove(const SlotView& slot, absl::Time now) const {
  return slot.replica_is_complete() &&
         !reachability_.AreApart(Reachability::kWorkers, slot.replica().incarnation(), now);
}

// At most one slot is handed over at a time. A slot goes to a process that answers for none: from
// one that answers for several, or because it is that process's own slot. So it never goes back and
// forth. Before all others goes a slot whose primary some worker cannot reach, and no slot goes to
// such a process for a while.
void SlotCoordinator::BeginHandingOver(absl::Time now, View* next) {
  for (const SlotView& slot : next->slot()) {
    if (slot.handing_over()) return;
  }
  const std::vector<Load> loads = Loads(*next, processes_.size());
  int best = -1;
  for (int s = 0; s < slots_; ++s) {
    const SlotView& slot = next->slot(s);
    if (!CanMove(slot, now)) continue;
    const auto without = reachability_.WorkerWithout(*next, s, now - reachability_.patience());
    if (without.has_value()) {
      reachability_.KeepApart(Reachability::kWorkers, slot.primary().incarnation(), now);
      events_.Add(absl::StrCat("worker ", *without, " cannot reach ps ", slot.primary().process(),
                               ", which hands slot ", s, " over"),
                  now);
      best = s;
      break;
    }
    if (loads[slot.replica().process()].primaries > 0) continue;
    const bool own = slot.replica().process() == static_cast<uint32_t>(s);
    const bool leaves_own = slot.primary().process() == static_cast<uint32_t>(s);
    if (!own && loads[slot.primary().process()].primaries < 2) continue;
    if (!own && IsBeingFilled(*next, slot.replica())) continue;
    if (own || best < 0 || !leaves_own) best = s;
    if (own) break;
  }
  if (best < 0) return;
  next->mutable_slot(best)->set_handing_over(true);
  hands_over_since_ = now;
}

void SlotCoordinator::SetProcess(uint32_t index, ProcessId* id) const {
  id->set_process(index);
  id->set_incarnation(processes_[index].present);
  id->set_address(processes_[index].state.address());
}

}  // namespace evenshard
