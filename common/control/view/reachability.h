#ifndef EVENSHARD_COMMON_CONTROL_VIEW_REACHABILITY_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_REACHABILITY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "common/control/view/start_table.h"
#include "proto/view.pb.h"

namespace evenshard {

// The part of ViewCoordinator that knows which processes cannot reach each other although it hears
// both of them, and for how long a pair is to be kept apart because of that. Not thread-safe.
class Reachability {
 public:
  // `processes` must outlive the object. `patience`: how long a process that reaches nobody else is
  // believed to be slow.
  Reachability(absl::Duration patience, const StartTable* processes)
      : patience_(patience), processes_(*processes) {}

  // Notes what the processes that follow `view` say. Those that do not follow it yet still mean
  // what they said before.
  void Note(const View& view, absl::Time now);

  // Since when the primary of a slot has not reached the slot's replica, if both have followed the
  // view for `patience` meanwhile.
  std::optional<absl::Time> MissesReplica(const SlotView& slot, int index, absl::Time now) const;

  // Keeps a pair of incarnations apart: for 4 times `patience`, and each time twice as long as the
  // time before, but for 10 minutes at most. A pair that got on for as long as it was kept apart
  // begins anew.
  void KeepApart(uint64_t from, uint64_t to, absl::Time now);
  bool AreApart(uint64_t from, uint64_t to, absl::Time now) const;

 private:
  // Somebody who cannot be reached.
  struct Missing {
    uint64_t incarnation = 0;
    absl::Time since;
  };
  struct Apart {
    absl::Duration pause;
    absl::Time until;
  };

  const absl::Duration patience_;
  const StartTable& processes_;
  // By the incarnation of the process that says so, and the slot.
  std::map<std::pair<uint64_t, int>, Missing> missing_;
  std::map<std::pair<uint64_t, uint64_t>, Apart> apart_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_REACHABILITY_H_
