#ifndef EVENSHARD_TOOLS_LAUNCH_LAUNCH_COORDINATOR_H_
#define EVENSHARD_TOOLS_LAUNCH_LAUNCH_COORDINATOR_H_

#include <cstdint>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/control/view/view_coordinator.h"
#include "tools/launch/recovery_host.h"

namespace evenshard {

// The coordinator of a run on this machine, without its network: hosts the ViewCoordinator, and
// sends its views to the processes that launch has started. The supervisor reports a process that
// ends. A process that is silent for recovery.silence_seconds is to be killed, and one that has not
// been heard of for the largest of these, limits.startup_seconds and exchange_seconds. Thread-safe.
class LaunchCoordinator : public RecoveryHost {
 public:
  // A process's connection.
  class Follower {
   public:
    virtual ~Follower() = default;
    // Sends the view instead of earlier ones that have not been sent yet. Called under the
    // coordinator's lock.
    virtual void Send(const View& view) = 0;
  };

  // `clock` must outlive the object.
  LaunchCoordinator(ViewCoordinator::Settings settings,
                    ViewCoordinator::NewestCheckpoint newest_checkpoint, const Clock* clock);

  // The workers are programs of the user's. They may take as long as they want before they join,
  // and may have work left when the run is over: how they end then counts, also by a signal. As in
  // a ring, whose worker 0 may have the model to save.
  void WorkersArePrograms();

  View view() const;
  // Whether any worker has connected.
  bool heard_worker() const;

  // Takes what a process says of itself, also if only to be heard of, and sends it the views from
  // now on. Errors: FAILED_PRECONDITION if the process has ended; those of ViewCoordinator::Seen.
  absl::Status Heard(Follower* follower, const ProcessState& state);
  // The connection has ended.
  void Forget(Follower* follower);

  void Started(ProcessRole role) override;
  Verdict Ended(ProcessRole role, absl::string_view reason, bool by_signal, bool success) override;
  Orders Poll() override;
  absl::Status failure() const override;

 private:
  // A place of the run, and the process in it.
  struct Place {
    bool runs = false;        // as the supervisor says
    ProcessState state = {};  // what the process has said last; empty if it has not been heard
    absl::Time heard = absl::InfinitePast();  // or the start
    bool ordered_killed = false;
  };

  // Sends a new view to the shards, and then to the workers: a push of a view that its shard has
  // not heard of ends the push's stream.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether all processes that have a role in the view's slots follow it.
  bool ShardsFollow() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Gone(ProcessRole role, absl::string_view reason, absl::Time since)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether the process in this place is a worker that has trained to the end.
  bool HasFinished(ProcessRole role, const Place& place) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Recovery recovery_;
  const bool is_ring_;
  const absl::Duration silence_;
  const absl::Duration first_silence_;  // before a process is heard of
  const Clock& clock_;

  mutable absl::Mutex mutex_;
  ViewCoordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  bool are_programs_ ABSL_GUARDED_BY(mutex_) = false;  // the workers
  bool may_have_work_left_ ABSL_GUARDED_BY(mutex_);    // a worker when the run is over
  uint64_t published_ ABSL_GUARDED_BY(mutex_) = 0;     // the view that the shards were sent
  absl::Time published_at_ ABSL_GUARDED_BY(mutex_);
  uint64_t worker_view_ ABSL_GUARDED_BY(mutex_) = 0;  // the view that the workers were sent
  std::map<ProcessRole, Place> places_ ABSL_GUARDED_BY(mutex_);
  std::map<Follower*, bool> followers_ ABSL_GUARDED_BY(mutex_);  // whether it is a worker's
  bool heard_worker_ ABSL_GUARDED_BY(mutex_) = false;            // of any
  absl::Time polled_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_LAUNCH_COORDINATOR_H_
