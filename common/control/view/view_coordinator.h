#ifndef EVENSHARD_COMMON_CONTROL_VIEW_VIEW_COORDINATOR_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_VIEW_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/control/view/event_log.h"
#include "common/control/view/reachability.h"
#include "common/control/view/ring_members.h"
#include "common/control/view/slot_coordinator.h"
#include "common/control/view/start_table.h"
#include "common/control/view/worker_set.h"
#include "common/control/view/worker_set_coordinator.h"
#include "proto/config.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// Decides which process has which role: the coordinator of a run. Its host tells it what the
// processes say of themselves, which of them are gone, and the time, and publishes each new view.
// docs/recovery.md explains the decisions.
//
// A pure state machine: it has no threads, no clock and no randomness, so that equal inputs give
// equal views. Not thread-safe. A successor finds everything that it needs in the latest view, or
// hears it again from the processes. The times that are passed in must not go backwards.
class ViewCoordinator {
 public:
  // A complete checkpoint, as its manifest describes it.
  struct Checkpoint {
    std::string name;         // in recovery.checkpoint.folder
    uint64_t generation = 0;  // the largest of all checkpoints that were begun in the folder
    uint64_t iteration = 0;   // the first exchange that is not in it; under ASYNC its number
    uint64_t trained = 0;     // the iterations of training that are in it; the same
    WorkerSetHistory worker_set = {};  // as it was at its cut
  };
  // Returns the newest complete checkpoint, or nothing if there is none. It may read files. If a
  // newer one cannot be read now, that is an error unless it may be passed over.
  using NewestCheckpoint =
      std::function<absl::StatusOr<std::optional<Checkpoint>>(bool passes_over_unreadable)>;

  struct Settings {
    int slots = 0;  // 0: a ring, whose views are those of RingMembers
    int spares = 0;
    int workers = 0;
    bool synchronous = true;
    Recovery recovery = {};
    absl::Duration startup = absl::Seconds(30);    // limits.startup_seconds
    absl::Duration exchange = absl::Seconds(300);  // limits.exchange_seconds
    uint64_t config_fingerprint = 0;
    uint64_t run = 0;
    // What the first generation begins from. Absent: the initial parameters.
    std::optional<Checkpoint> resume = {};
  };
  // Takes everything but `run` and `resume` from a config and its fingerprint.
  static Settings SettingsOf(const ClusterConfig& config, uint64_t config_fingerprint);

  // One start of a process.
  struct Process {
    bool is_worker = false;
    uint32_t index = 0;  // of a ps process, or the rank of a worker
    uint64_t incarnation = 0;
  };

  // Begins a run, or goes on after `last`, the latest view that another coordinator of the run has
  // published. The processes that it names count as alive until Gone says otherwise.
  ViewCoordinator(Settings settings, NewestCheckpoint newest_checkpoint, View last = {});

  // Notes what a process says of itself. A new start of a process replaces the one before, which
  // must be gone by then.
  //
  // Errors, after which the process should end: INVALID_ARGUMENT if there is no such process;
  // FAILED_PRECONDITION if its config differs, if it declares another model than the worker that
  // came first, or if this start of it is gone or replaced.
  absl::Status Seen(const ProcessState& state, absl::Time now);

  // Notes that a start of a process is gone since `since`. REQUIRES: it is fenced, so that it
  // answers nobody and changes no memory of another process any more. `reason` says what happened
  // to it: "was killed by SIGKILL". Has no effect for a start that is gone or unknown.
  void Gone(const Process& process, absl::string_view reason, absl::Time since, absl::Time now);

  // Lets time pass. Called about every 0.1 s.
  void Tick(absl::Time now);

  // The present view; number 0 until enough ps processes have been seen.
  const View& view() const { return view_; }
  // Why the run has failed. Nothing changes any more then.
  const absl::Status& failure() const { return failure_; }
  // Whether the run has succeeded: every worker whose gradients count has trained to the end.
  bool finished() const { return view_.finished(); }
  // Returns the events since the last call, in order. An event is returned once it is over, with
  // the time for which it held up the run or a slot.
  std::vector<RecoveryEvent> TakeEvents();

 private:
  void Advance(absl::Time now);
  // What the run cannot go on from without going back, "" if there is nothing; and since when.
  std::pair<std::string, absl::Time> Loss(View* next);
  // Notes which workers have come, gone and finished.
  absl::Status UpdateWorkers(View* next);
  void LoseCutOff();
  bool MayBegin() const;
  std::string Unreadable() const;
  std::string LostState() const;
  absl::Status GoBack(const std::string& loss, absl::Time since, View* next);
  void BeginGeneration(const std::optional<Checkpoint>& checkpoint, View* next);
  const ProcessState::Position* PositionOf(int slot, const View& next) const;
  uint64_t SmallestFollowed() const;
  void Fail(absl::string_view reason);

  const Settings settings_;
  const NewestCheckpoint newest_checkpoint_;
  View view_;
  Declaration declaration_;  // the workers'; empty before it is known
  absl::Status failure_;
  EventLog events_;
  std::deque<RecoveryEvent> told_;  // the latest events, which the next view will have
  uint64_t told_before_ = 0;        // how many were told before these
  StartTable processes_;
  StartTable workers_;
  Reachability reachability_;
  SlotCoordinator slots_;
  WorkerSetCoordinator worker_set_;
  std::optional<RingMembers> ring_;
  absl::Time now_ = absl::InfinitePast();  // the latest time that was passed in
  // Since when the newest checkpoint cannot be read.
  absl::Time unreadable_since_ = absl::InfiniteFuture();
  absl::Time read_again_ = absl::InfinitePast();
  absl::Time first_seen_ = absl::InfiniteFuture();  // when the first ps came
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_VIEW_COORDINATOR_H_
