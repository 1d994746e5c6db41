#ifndef EVENSHARD_WORKER_RING_RECOVERY_RING_CHECKPOINTER_H_
#define EVENSHARD_WORKER_RING_RECOVERY_RING_CHECKPOINTER_H_

#include <cstdint>
#include <stop_token>
#include <thread>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/shard_file_writer.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"
#include "proto/view.pb.h"
#include "worker/ring/core/ring_part.h"

namespace evenshard {

// Writes a worker's part of a ring's checkpoints (recovery.checkpoint). All workers cut after the
// same iterations and after the last, each when it is over, so that no one has to tell the others.
// A cut copies the part, which a thread then writes while training goes on; the next cut waits for
// it. A worker that finds the parts of all in place completes the checkpoint and removes old ones.
// A part that cannot be written is logged, and what the others have written of its checkpoint is
// removed, since the next one may need the room. Training goes on.
//
// Not thread-safe.
class RingCheckpointer {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive this, like every pointer here
    const RingPart* part = nullptr;
    Storage* storage = nullptr;
    const Clock* clock = nullptr;
    View view = {};  // in which the ring was formed
  };

  explicit RingCheckpointer(const Options& options);
  // Waits until what was cut is written, but not for other workers.
  ~RingCheckpointer() = default;

  // Whether the checkpoints are cut after so many iterations.
  bool IsCutAt(int64_t iteration) const;
  // Cuts after so many iterations. Waits for the cut before. `parameters` are the worker's.
  // REQUIRES: no iteration is under way.
  void TakeCut(int64_t iteration, absl::Span<const float> parameters);
  // Waits until the last checkpoint is complete, as far as that is up to this worker.
  void Finish();

 private:
  // Removes what lacks this worker's part for good, and then writes that of a cut.
  absl::Status Write(const Cut& cut) const;
  // Logs that the part is not written, and removes those of the others.
  void Fail(const Cut& cut, const absl::Status& why) const;
  absl::Status Complete(const Cut& cut, const std::stop_token& stop) const;

  const Options options_;
  const CheckpointFolder folder_;
  const CheckpointPart part_;
  RingPart::Copy copy_;  // of the latest cut; the thread reads it
  std::jthread thread_;  // destroyed first
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_RECOVERY_RING_CHECKPOINTER_H_
