#ifndef EVENSHARD_COMMON_CHECKPOINT_FOLDER_OWNER_H_
#define EVENSHARD_COMMON_CHECKPOINT_FOLDER_OWNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/checkpoint/storage/storage.h"

namespace evenshard {

// A run's hold on a folder of checkpoints, so that no two runs write to one folder. It has two
// parts: the file LOCK, which is locked as long as this exists, and the file RUN, which names the
// run that owns the folder even where locks do not reach, as between machines. The processes of the
// run check RUN before they write (CheckOwner). Thread-safe.
class FolderOwner {
 public:
  // Makes the folder if necessary, locks it and makes it this run's, which goes on with the
  // checkpoints that are there. `who` is for other runs' errors: "launch, process 71 on host a".
  // The next coordinator of the same run calls it again. `check` looks at the folder under the
  // lock, before it is the run's. `storage` must outlive this. Errors: FAILED_PRECONDITION if
  // another process holds it, which the message names; those of `check` and of Storage.
  static absl::StatusOr<std::unique_ptr<FolderOwner>> Take(
      Storage* storage, const std::string& folder, uint64_t run, absl::string_view who,
      absl::FunctionRef<absl::Status()> check = absl::OkStatus);

 private:
  explicit FolderOwner(std::unique_ptr<FileLock> lock) : lock_(std::move(lock)) {}

  const std::unique_ptr<FileLock> lock_;
};

// Returns the run that owns the folder. Errors: NOT_FOUND if none does; DATA_LOSS if RUN is
// damaged.
absl::StatusOr<uint64_t> OwnerOf(Storage* storage, const std::string& folder);

// Returns OK if the run owns the folder. Errors: FAILED_PRECONDITION if another run does, with what
// Take() wrote; UNAVAILABLE if none does, as while the folder is not mounted.
absl::Status CheckOwner(Storage* storage, const std::string& folder, uint64_t run);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_FOLDER_OWNER_H_
