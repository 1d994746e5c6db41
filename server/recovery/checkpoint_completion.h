#ifndef EVENSHARD_SERVER_RECOVERY_CHECKPOINT_COMPLETION_H_
#define EVENSHARD_SERVER_RECOVERY_CHECKPOINT_COMPLETION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/checkpoint_id.h"
#include "proto/admin.pb.h"

namespace evenshard {

// Completes the checkpoints of which a slot has written its part. Thread-safe; one thread at a time
// calls Look.
class CheckpointCompletion {
 public:
  struct Options {
    const CheckpointFolder* folder = nullptr;  // must outlive this
    int slot = 0;
    int shards = 0;
    int keep = 1;  // complete checkpoints
  };
  // How far the slot is.
  struct Progress {
    uint64_t run = 0;
    // Up to this one it writes no other than `writes`. Nothing: it was told last time.
    std::optional<CheckpointId> left_out_to;
    std::optional<CheckpointId> writes;
    // The run: whichever slot completes the last checkpoint then removes what is too old.
    bool is_over = false;
  };
  struct Found {
    std::optional<uint64_t>
        number;           // of the newest own checkpoint that is complete since last time
    absl::Status status;  // the first error of completing, after which the rest was looked at
  };

  explicit CheckpointCompletion(const Options& options) : options_(options) {}

  // The slot's part of a checkpoint of the given number is in place.
  void Add(const CheckpointId& id, uint64_t number);

  // The newest of which the slot's part is in place.
  std::optional<CheckpointId> newest() const;

  // How many wait for other slots' parts.
  size_t waiting() const;

  // Completes what has all its parts, and removes what others have written of checkpoints that this
  // slot has left out. Slot 0 removes what is too old.
  Found Look(const Progress& progress, absl::Time now);

  void FillStats(absl::Time now, ShardStats::Recovery* recovery) const;

 private:
  absl::Status TryComplete(const CheckpointId& id, const Progress& progress, absl::Time now,
                           Found* found);

  const Options options_;
  mutable absl::Mutex mutex_;
  // Those whose manifest is not there yet, with their numbers.
  std::map<CheckpointId, uint64_t> written_ ABSL_GUARDED_BY(mutex_);
  std::optional<CheckpointId> durable_ ABSL_GUARDED_BY(mutex_);  // the newest complete one
  absl::Time durable_since_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_CHECKPOINT_COMPLETION_H_
