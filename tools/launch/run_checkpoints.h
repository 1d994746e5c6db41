#ifndef PS_TOOLS_LAUNCH_RUN_CHECKPOINTS_H_
#define PS_TOOLS_LAUNCH_RUN_CHECKPOINTS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/storage.h"
#include "common/config/config.h"
#include "common/view/view_keeper.h"

namespace ps {

// The checkpoints of a run, as its authority needs them, and the run's hold on their folder.
// Thread-safe.
class RunCheckpoints {
 public:
  // Takes recovery.checkpoint.folder for the run until the object is destroyed. `storage` must
  // outlive it.
  // Errors: INVALID_ARGUMENT without `resume` if the folder has checkpoints, and with it if it has
  // no complete one; FAILED_PRECONDITION if another run holds it; those of Storage.
  static absl::StatusOr<std::unique_ptr<RunCheckpoints>> Open(const Config& config, uint64_t run,
                                                              bool resume, Storage* storage);

  // What the run resumes from; absent without `resume`.
  const std::optional<ViewKeeper::Checkpoint>& resume() const { return resume_; }

  // Returns the newest checkpoint that is complete and whole. Warns of newer ones that are damaged.
  absl::StatusOr<std::optional<ViewKeeper::Checkpoint>> Newest() const;

 private:
  RunCheckpoints(Storage* storage, std::string path) : folder_(storage, std::move(path)) {}

  const CheckpointFolder folder_;
  std::unique_ptr<FolderOwner> owner_;            // constant after Open
  std::optional<ViewKeeper::Checkpoint> resume_;  // likewise
};

}  // namespace ps

#endif  // PS_TOOLS_LAUNCH_RUN_CHECKPOINTS_H_
