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
  // Stands for all workers in KeepApart and AreApart.
  static constexpr uint64_t kWorkers = 0;

  // The tables must outlive the object. `patience`: how long one that does not answer may be slow.
  Reachability(absl::Duration patience, const StartTable* processes, const StartTable* workers)
      : patience_(patience), processes_(*processes), workers_(*workers) {}

  absl::Duration patience() const { return patience_; }

  // Notes what the processes that follow `view` say. Those that do not follow it yet still mean
  // what they said before.
  void Note(const View& view, absl::Time now);

  // Since when one has not reached the other because of a slot, while both followed the view: a
  // primary its replica, or a worker the primary. InfiniteFuture if it does.
  absl::Time MissingSince(uint64_t from, int slot, uint64_t to) const;
  // The first rank that has not reached the primary of a slot since `since` or longer.
  std::optional<uint32_t> WorkerWithout(const View& view, int slot, absl::Time since) const;
  // Whether most members of the worker set do not reach the primary of a slot.
  bool MostAreWithout(const View& view, int slot) const;

  // Keeps two incarnations apart: for 4 times `patience`, and each time twice as long as the time
  // before, but for 10 minutes at most. Two that got on for as long as they were kept apart begin
  // anew.
  void KeepApart(uint64_t one, uint64_t other, absl::Time now);
  bool AreApart(uint64_t one, uint64_t other, absl::Time now) const;
  // The same for a rank and the run, whichever start of the worker has the rank.
  void KeepOut(uint32_t rank, absl::Time now) { KeepApart(kWorkers, ~uint64_t{rank}, now); }
  bool IsOut(uint32_t rank, absl::Time now) const {
    return AreApart(kWorkers, ~uint64_t{rank}, now);
  }

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
  const StartTable& workers_;
  // By the incarnation of the process that says so, and the slot.
  std::map<std::pair<uint64_t, int>, Missing> missing_;
  std::map<std::pair<uint64_t, uint64_t>, Apart> apart_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_REACHABILITY_H_
