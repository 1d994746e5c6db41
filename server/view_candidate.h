#ifndef EVENSHARD_SERVER_VIEW_CANDIDATE_H_
#define EVENSHARD_SERVER_VIEW_CANDIDATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/checkpoint/storage/storage.h"
#include "common/control/etcd/coordinator_checkpoints.h"
#include "common/control/etcd/etcd_coordinator.h"
#include "common/control/etcd/etcd_machine.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/view_coordinator.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// A ps as a candidate for coordinator of a run with recovery.etcd: its EtcdCoordinator, and the
// run's checkpoints, whose folder the process takes when it is elected. It keeps the folder's lock
// then until it is elected once more or ends. Thread-safe.
class ViewCandidate final : private CoordinatorCheckpoints {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the candidate
    int process = 0;                        // the index of this ps
    // Whether a run that this process begins does so from the newest checkpoint of an earlier one.
    bool resume = false;
    std::shared_ptr<EtcdRuntime> etcd;
    uint64_t run = 0;            // what a run is called that this process begins
    Storage* storage = nullptr;  // of the folder of checkpoints; must outlive the candidate
    // Called when the run cannot use its folder. Must not block.
    std::function<void()> request_shutdown = [] {};
  };
  // REQUIRES: the config has recovery.etcd.
  explicit ViewCandidate(const Options& options);
  // Blocks for a few seconds at most.
  ~ViewCandidate() override;

  // Why this process cannot make views, or OK. INVALID_ARGUMENT if the config or `resume` does not
  // fit what is in the folder.
  absl::Status failure() const;

 private:
  absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Begin(uint64_t run,
                                                                   bool is_new) override;
  absl::Status Hold() override;
  absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Newest(
      bool passes_over_unreadable) override;
  // Ends the process for a reason that has to do with the folder. Returns it.
  absl::Status Fail(const absl::Status& reason);

  const Options options_;

  mutable absl::Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);

  // The coordinator's runner's.
  std::unique_ptr<RunCheckpoints> checkpoints_;
  absl::Time tries_until_ = absl::InfiniteFuture();  // to take the folder that another one holds

  std::unique_ptr<EtcdCoordinator>
      coordinator_;  // destroyed first, because it uses the other members
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_VIEW_CANDIDATE_H_
