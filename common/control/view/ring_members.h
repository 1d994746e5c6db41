#ifndef EVENSHARD_COMMON_CONTROL_VIEW_RING_MEMBERS_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_RING_MEMBERS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/control/view/start_table.h"
#include "common/control/view/worker_set.h"
#include "proto/config.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// The part of ViewCoordinator that takes the place of slots and worker sets in a ring
// (topology: RING), where nothing survives the loss of a worker but checkpoints: each loss begins a
// generation, which is a ring of its own.
//
//   1. The workers of a generation are ABSENT until each of them follows a view of it, by which a
//      worker says that it has nothing of an earlier ring any more. Then all are MEMBER, which
//      tells them to connect.
//   2. A member that is lost is in the next generation as its replacement, or under CONTINUE not at
//      all, if enough others are left.
//   3. One that has trained to the end is FINISHED, and is a loss too if it ends before all are.
//
// Not thread-safe.
class RingMembers {
 public:
  struct Settings {
    Recovery::WorkerLoss worker_loss = Recovery::FAIL;
    size_t min_workers = 2;
  };

  // `workers` must outlive the object.
  RingMembers(const Settings& settings, const StartTable* workers);

  // What has become of members that are lost: "worker 2 was killed by SIGKILL", "" if none is; and
  // since when.
  std::string Loss(const View& view) const;
  absl::Time LostSince(const View& view) const;

  // Makes `next` begin a generation without the members that are lost in it, or with their
  // replacements. `history` has the worker sets before `iteration`.
  void BeginGeneration(WorkerSetHistory history, uint64_t iteration, View* next);
  // "with 3 workers", for the generation that `next` has begun.
  static std::string Size(const View& next);

  // Notes which workers have come and which have trained to the end.
  void Update(View* next) const;

  // Whether all workers of the ring are there; whether all have trained to the end.
  static bool IsFormed(const View& view);
  static bool AllFinished(const View& view);

 private:
  std::vector<uint32_t> Lost(const View& view) const;
  bool MayDrop(size_t workers) const {
    return settings_.worker_loss == Recovery::CONTINUE && workers > settings_.min_workers;
  }

  const Settings settings_;
  const StartTable& workers_;
  uint64_t generation_began_ = 0;  // the number of the view that began it
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_RING_MEMBERS_H_
