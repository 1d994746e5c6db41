#ifndef EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_CHECKPOINTS_H_
#define EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_CHECKPOINTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/control/view/view_coordinator.h"

namespace evenshard {

// A coordinator's access to the checkpoints of its run. One thread at a time uses it.
class CoordinatorCheckpoints {
 public:
  virtual ~CoordinatorCheckpoints() = default;

  // Called when a term begins. If the run begins with it (`is_new`), returns the checkpoint to
  // begin from, or nothing for the initial parameters. An error ends the term.
  virtual absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Begin(uint64_t run,
                                                                           bool is_new) = 0;
  // Called about every 0.1 s while the term lasts. An error ends it.
  virtual absl::Status Hold() = 0;
  // See ViewCoordinator::NewestCheckpoint. REQUIRES: Begin has returned OK.
  virtual absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Newest(
      bool passes_over_unreadable) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_ETCD_COORDINATOR_CHECKPOINTS_H_
