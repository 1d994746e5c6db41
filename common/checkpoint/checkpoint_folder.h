#ifndef EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_id.h"
#include "common/checkpoint/checkpoint_record.h"
#include "common/checkpoint/storage/storage.h"

namespace evenshard {

// What is known of a checkpoint in a folder.
struct CheckpointInfo {
  enum class State {
    kComplete,
    kIncomplete,  // has no manifest: is being written, or its run has ended before it was
    kDamaged,     // has a manifest, but cannot be read
  };

  CheckpointId id;
  State state = State::kIncomplete;
  std::string why;  // unless it is complete
  // Damaged or not, it cannot be read now: the disk or the system has an error, which may pass.
  bool is_unreadable = false;
  int64_t bytes = 0;  // of the shards' files that are there
  // What the manifest says, unless it is missing or damaged.
  std::optional<CheckpointFacts> facts;
  absl::Time written;
};

enum class Verification {
  kQuick,  // the manifest, and the files' sizes
  kFull,   // reads every file and compares all checksums
};

// The folder of a run's checkpoints (recovery.checkpoint.folder). It keeps no state, so processes
// may have one each. Other files in the folder are left alone. Thread-safe, except that only one
// thread at a time may call the methods that change the folder.
class CheckpointFolder {
 public:
  // `storage` must outlive this. The folder need not exist yet.
  CheckpointFolder(Storage* storage, std::string path)
      : storage_(storage), path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  // Returns all checkpoints, the newest first; none if there is no such folder.
  absl::StatusOr<std::vector<CheckpointInfo>> List(
      Verification verification = Verification::kQuick) const;

  // Returns the newest complete checkpoint, or nullopt. Adds the newer ones that were passed over,
  // damaged or incomplete, to `passed_over`, which may be null. Those that cannot be read now
  // (is_unreadable) are among these only if `passes_over_unreadable`. Errors: UNAVAILABLE if one
  // that cannot be read now is not passed over, or none is complete besides.
  absl::StatusOr<std::optional<CheckpointInfo>> Newest(
      Verification verification, bool passes_over_unreadable,
      std::vector<CheckpointInfo>* passed_over) const;

  // Returns a generation that no checkpoint in the folder has reached, complete or not: at least 1.
  // A run that begins or goes back takes it, so that its checkpoints have names of their own.
  absl::StatusOr<uint64_t> NextGeneration() const;

  // Writes the manifest, and returns true, if the records of all shards are there. Returns true
  // also if the manifest is there already, and false if a record is missing yet.
  // Errors: NOT_FOUND if the checkpoint is not there, or not any more; FAILED_PRECONDITION if the
  // folder is not the run's, or records are of different checkpoints; DATA_LOSS if a record is
  // damaged or its file does not have the recorded size.
  absl::StatusOr<bool> TryComplete(const CheckpointId& id, uint64_t run, int shards,
                                   absl::Time now) const;

  // Removes all complete checkpoints but the newest `keep` (at least 1), every checkpoint that is
  // older than these, and incomplete ones older than the newest complete one. Errors: the first one
  // of Storage, after which the others have been removed all the same.
  absl::Status RemoveOld(int keep) const;

  // Removes a checkpoint of the run unless it has its manifest. A process that still writes to it
  // gets an error. Errors: those of CheckOwner and of Storage.
  absl::Status RemoveIncomplete(const CheckpointId& id, uint64_t run) const;

  // Removes the incomplete checkpoints that will never be complete: those up to `last` that lack
  // this slot's record, and those of earlier generations. `writes` is not removed. REQUIRES: the
  // slot writes none up to `last` but `writes`. Errors: those of CheckOwner; the first one of
  // Storage, after which the others have been removed all the same.
  absl::Status RemoveLeftOut(const CheckpointId& last, const std::optional<CheckpointId>& writes,
                             uint64_t run, int slot, int shards) const;

  // Checks a checkpoint. Errors: NOT_FOUND if there is no manifest; DATA_LOSS if it is damaged;
  // FAILED_PRECONDITION if it was written by a newer version.
  absl::Status Verify(const CheckpointId& id, Verification verification) const;

  // Reads the manifest. Errors: as Verify.
  absl::StatusOr<Manifest> ReadManifest(const CheckpointId& id) const;

  // The path of a file of a checkpoint.
  std::string FilePath(const CheckpointId& id, const std::string& name) const;

 private:
  absl::StatusOr<std::vector<CheckpointId>> Ids() const;  // the newest first
  CheckpointInfo Describe(const CheckpointId& id, Verification verification) const;
  absl::Status VerifyFile(const ShardRecord& record, Verification verification) const;
  absl::Status Remove(const CheckpointId& id) const;

  Storage* const storage_;
  const std::string path_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHECKPOINT_FOLDER_H_
