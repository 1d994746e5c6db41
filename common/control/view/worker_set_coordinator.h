#ifndef EVENSHARD_COMMON_CONTROL_VIEW_WORKER_SET_COORDINATOR_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_WORKER_SET_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/control/view/event_log.h"
#include "common/control/view/reachability.h"
#include "common/control/view/start_table.h"
#include "common/control/view/worker_set.h"
#include "proto/config.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// The part of ViewCoordinator that decides which workers belong to the run, and from which
// iteration on each counts. Each method changes `next`, which begins as the present view and
// becomes the next one if it differs. Not thread-safe.
class WorkerSetCoordinator {
 public:
  struct Settings {
    bool synchronous = true;
    Recovery::WorkerLoss worker_loss = Recovery::FAIL;
    uint32_t min_workers = 1;
    // How long CONTINUE waits for a worker that has never been seen.
    absl::Duration startup;
    // How long the end of an asynchronous run waits for a worker that is lost.
    absl::Duration silence;
    // How often a synchronous run is told to cut a checkpoint (View.cut_iteration).
    absl::Duration cut_every = absl::InfiniteDuration();
  };

  // `workers`, `reachability` and `events` must outlive the object. Ignores a worker's "finished"
  // if it was sent before the worker followed view `number`.
  WorkerSetCoordinator(Settings settings, uint64_t number, const StartTable* workers,
                       const Reachability* reachability, EventLog* events);

  // All workers train from `iteration` on, also those that had finished. `history` has the worker
  // sets before it, and is empty if no iteration is kept.
  void BeginGeneration(WorkerSetHistory history, uint64_t iteration, absl::Time now, View* next);

  // Returns where a slot stands in the present view, or nullptr if its primary has not said so yet,
  // or another one is to follow it.
  using PositionOf = std::function<const ProcessState::Position*(int slot)>;

  // Notes which workers have come, gone and finished, and changes the worker set. Errors: ABORTED
  // if the run fails because a worker is lost.
  absl::Status Update(const View& view, const PositionOf& position_of, absl::Time now, View* next);

  // Whether a member that is lost is not waited for.
  bool GoesOnWithoutOne(const View& view) const;

  // Whether every worker whose gradients count has trained to the end.
  bool AllFinished(const View& view, absl::Time now) const;

 private:
  struct Absence {
    // When the rank became absent; InfiniteFuture while it is not.
    absl::Time since = absl::InfiniteFuture();
    bool was_lost = false;       // it has been there before
    bool is_waited_for = false;  // the run cannot go on without it
  };

  absl::Status NoteLosses(uint64_t number, absl::Time now, View* next);
  void NoteFinished(View* next) const;
  void Admit(absl::Time now, View* next);
  bool FinishChange(const View& view, const PositionOf& position_of, absl::Time now, View* next);
  void BeginChange(absl::Time now, View* next);
  // If a cut is due, begins a change that keeps the worker set and ends with the order to cut. The
  // order has no effect while a slot has not begun the cut before.
  void OrderCut(absl::Time now, View* next);
  bool IsGivenUp(uint32_t rank, absl::Time now) const;
  bool ChangesWorkerSets() const;
  // Whether an asynchronous run goes on without a worker that is lost.
  bool GoesOnAsynchronously() const;
  // "worker 3 was killed by SIGKILL"
  std::string Fate(uint32_t rank) const;

  const Settings settings_;
  const StartTable& workers_;
  const Reachability& reachability_;
  EventLog& events_;
  uint64_t generation_began_;                      // the number of the view that began it
  std::vector<Absence> absence_;                   // by rank
  absl::Time cut_ordered_ = absl::InfinitePast();  // when the latest cut was ordered
  absl::Duration cut_pause_;                       // from then until the next order
  absl::Time admitted_ = absl::InfinitePast();
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_WORKER_SET_COORDINATOR_H_
