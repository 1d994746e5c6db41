#ifndef EVENSHARD_TOOLS_LAUNCH_COORDINATOR_H_
#define EVENSHARD_TOOLS_LAUNCH_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/control/view/view_coordinator.h"
#include "grpcpp/server.h"
#include "proto/coordinator.grpc.pb.h"
#include "tools/launch/recovery_host.h"

namespace evenshard {

// The coordinator of a run on this machine: hosts the ViewCoordinator, and serves Coordinator to
// the processes that launch has started. The supervisor reports a process that ends. A process that
// has been heard of and then is silent for recovery.silence_seconds is to be killed. Thread-safe.
class CoordinatorServer final : public RecoveryHost, private Coordinator::CallbackService {
 public:
  // Serves at a socket in a private folder, which the destructor removes. `clock` must outlive the
  // object. Errors: those of the folder; UNAVAILABLE if nobody can listen there.
  static absl::StatusOr<std::unique_ptr<CoordinatorServer>> Start(
      ViewCoordinator::Settings settings, ViewCoordinator::NewestCheckpoint newest_checkpoint,
      const Clock* clock);
  ~CoordinatorServer() override;

  // What --coordinator is for the processes.
  const std::string& address() const { return address_; }

  View view() const;

  void Started(ProcessRole role) override;
  Verdict Ended(ProcessRole role, absl::string_view reason, bool by_signal, bool success) override;
  Orders Poll() override;
  absl::Status failure() const override;

 private:
  class Follower;

  // A place of the run, and the process in it.
  struct Place {
    bool runs = false;        // as the supervisor says
    ProcessState state = {};  // what the process has said last; empty if it has not been heard
    absl::Time heard = absl::InfinitePast();
    bool ordered_killed = false;
  };

  CoordinatorServer(ViewCoordinator::Settings settings,
                    ViewCoordinator::NewestCheckpoint newest_checkpoint, const Clock* clock,
                    std::string folder);

  grpc::ServerBidiReactor<ProcessState, View>* Follow(
      grpc::CallbackServerContext* context) override;
  absl::Status Heard(Follower* follower, const ProcessState& state);
  void Forget(Follower* follower);
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
  const absl::Duration silence_;
  const uint64_t config_fingerprint_;
  const Clock& clock_;
  const std::string folder_;
  const std::string address_;

  mutable absl::Mutex mutex_;
  ViewCoordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  uint64_t published_ ABSL_GUARDED_BY(mutex_) = 0;  // the view that the shards were sent
  absl::Time published_at_ ABSL_GUARDED_BY(mutex_);
  uint64_t worker_view_ ABSL_GUARDED_BY(mutex_) = 0;  // the view that the workers were sent
  std::map<ProcessRole, Place> places_ ABSL_GUARDED_BY(mutex_);
  std::set<Follower*> followers_ ABSL_GUARDED_BY(mutex_);
  int streams_ ABSL_GUARDED_BY(mutex_) = 0;  // followers_ and those not heard yet
  absl::Time polled_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();

  std::unique_ptr<grpc::Server> server_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_COORDINATOR_H_
