#ifndef EVENSHARD_COMMON_CONTROL_VIEW_SLOT_COORDINATOR_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_SLOT_COORDINATOR_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "common/control/view/event_log.h"
#include "common/control/view/reachability.h"
#include "common/control/view/start_table.h"
#include "proto/view.pb.h"

namespace evenshard {

// The part of ViewCoordinator that decides which ps process is primary and replica of which slot.
// Each method changes `next`, which begins as the present view and becomes the next one if it
// differs. Not thread-safe.
class SlotCoordinator {
 public:
  // `processes`, `reachability` and `events` must outlive the object. `deposes`: a complete replica
  // may take over from a primary that is alive and that neither it nor a worker can reach. REQUIRES
  // then: no primary writes into the memory of a worker.
  SlotCoordinator(int slots, bool has_copies, bool deposes, const StartTable* processes,
                  Reachability* reachability, EventLog* events);

  // Whether enough processes are alive for a generation: each slot has its own process or a spare.
  bool HasEnoughProcesses() const;

  // Gives every slot a primary and a replica, as a generation begins, and forgets what was lost.
  // REQUIRES: HasEnoughProcesses().
  void AssignAll(View* next);

  // Applies what the primaries report of the replicas that they fill and the slots that they hand
  // over, and replaces processes that are gone. A slot whose state no process has is left without a
  // primary.
  void ReplaceGone(const View& view, absl::Time now, View* next);

  // Whether a slot has a complete replica that workers may reach.
  bool CanMove(const SlotView& slot, absl::Time now) const;

  // Why a slot is lost: "ps 1 was killed by SIGKILL, and nobody has a replica of slot 1". Empty if
  // none is.
  const std::string& loss() const { return loss_; }
  absl::Time lost_since() const { return lost_since_; }

  // Finds processes for replicas that are missing, and relieves those that are primary of several
  // slots. No process gets more than two roles: a slot rather goes without a replica.
  // REQUIRES: no slot is lost.
  void Improve(absl::Time now, View* next);

 private:
  void TakeReports(const View& view, absl::Time now, View* next);
  void Part(const View& view, int index, absl::Time since, absl::Time now, View* next);
  void GiveCopies(absl::Time now, View* next) const;
  int MakeRoom(const ProcessId& primary, absl::Time now, View* next) const;
  void MoveReplica(absl::Time now, View* next) const;
  bool IsBeingFilled(const View& view, const ProcessId& process) const;
  void BeginHandingOver(absl::Time now, View* next);
  void SetProcess(uint32_t index, ProcessId* id) const;

  const int slots_;
  const bool has_copies_;
  const StartTable& processes_;
  Reachability& reachability_;
  const bool deposes_;
  EventLog& events_;
  absl::Time hands_over_since_ = absl::InfiniteFuture();
  std::string loss_;
  absl::Time lost_since_ = absl::InfiniteFuture();
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_SLOT_COORDINATOR_H_
