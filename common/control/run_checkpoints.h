#ifndef EVENSHARD_COMMON_CONTROL_RUN_CHECKPOINTS_H_
#define EVENSHARD_COMMON_CONTROL_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/storage/storage.h"
#include "common/control/view/view_coordinator.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// The checkpoints of a run, as its coordinator needs them, and the run's hold on their folder.
// Thread-safe, except for Hold.
class RunCheckpoints {
 public:
  enum class Start {
    kNew,      // a run that begins from the initial parameters
    kResumed,  // a run that begins from the newest checkpoint of an earlier one
    kGoesOn,   // a run that has begun, whose coordinator is another process now
  };

  // Takes recovery.checkpoint.folder for the run until the object is destroyed. `who` is for other
  // runs' errors, as in FolderOwner. `storage` must outlive the
  // object. `clock` is that of the waits for a disk that cannot be read.
  // A folder of which no checkpoint was ever complete begins anew under both kNew and kResumed.
  // Errors: INVALID_ARGUMENT under kNew if the folder has checkpoints, and under kResumed if it has
  // no complete one, or one that does not fit the config; FAILED_PRECONDITION if another run holds
  // it; under kGoesOn those of Hold, otherwise those of Storage.
  static absl::StatusOr<std::unique_ptr<RunCheckpoints>> Open(const PlannedConfig& config,
                                                              uint64_t run, Start start,
                                                              absl::string_view who,
                                                              Storage* storage, const Clock& clock);

  // Takes the folder's lock unless this has it already. The process that was the coordinator before
  // may still hold it, so this has to be called again and again. Errors: FAILED_PRECONDITION if
  // another run has taken the folder over. Others may pass, as of a folder that is not mounted, and
  // are none here.
  absl::Status Hold();

  // Returns what a run begins from, if not from the beginning with its first generation. Its name
  // is empty where there is nothing to go on from, but generations that have had checkpoints.
  // Errors: INVALID_ARGUMENT as for Open; those of Storage.
  static absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> FindStart(
      const PlannedConfig& config, bool resumes, Storage* storage, const Clock& clock);

  // What FindStart returned.
  const std::optional<ViewCoordinator::Checkpoint>& resume() const { return resume_; }

  // Returns the newest checkpoint that is complete and whole. Warns of newer ones that it passes
  // over. See ViewCoordinator::NewestCheckpoint. Errors: those of CheckOwner and of
  // CheckpointFolder::Newest.
  absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> Newest(
      bool passes_over_unreadable) const;

 private:
  RunCheckpoints(Storage* storage, std::string path, uint64_t run, absl::string_view who)
      : storage_(storage), folder_(storage, std::move(path)), run_(run), who_(who) {}

  Storage* const storage_;
  const CheckpointFolder folder_;
  const uint64_t run_;
  const std::string who_;
  std::unique_ptr<FolderOwner> owner_;                 // null without the lock
  std::optional<ViewCoordinator::Checkpoint> resume_;  // constant after Open
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_RUN_CHECKPOINTS_H_
