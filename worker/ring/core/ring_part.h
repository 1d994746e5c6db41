#ifndef EVENSHARD_WORKER_RING_CORE_RING_PART_H_
#define EVENSHARD_WORKER_RING_CORE_RING_PART_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/float_buffer.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/shard_file_writer.h"
#include "common/optimizer/tensor_optimizers.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/hyperparameters.h"
#include "worker/ring/core/ring_sums.h"

namespace evenshard {

// A worker's part of the model: the optimizer, and its state, of the segments whose sums come to
// this worker. So each of n workers has 1/n of the state, as in ZeRO's first stage (Rajbhandari et
// al. 2020). If parameters travel in 16 bits, the part also has the float32 masters, and workers
// train on rounded copies. Thread-safe for different segments, after Start.
class RingPart {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the part, like every pointer here
    const RingPlan* plan = nullptr;
    int place = 0;  // in the ring
    int rank = 0;   // for errors
  };
  // Allocates the state. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<RingPart>> Create(const Options& options);

  // Takes the model's parameters, in float32, and rounds them as others will receive them.
  // Errors: OUT_OF_RANGE for a parameter that the encoding cannot represent.
  absl::Status Start(absl::Span<float> parameters);
  // Begins from a checkpoint, which any number of workers may have written: reads the parameters of
  // the whole model, and the state of this part. Errors: those of CheckpointReader and of Start.
  absl::Status Restore(CheckpointReader& checkpoint, absl::Span<float> parameters);

  // The arrays of the part as a checkpoint has them, each with the part's segments one after
  // another: the float32 parameters, of which `parameters` are the worker's, and the state. Not to
  // be called while segments are updated. Errors: RESOURCE_EXHAUSTED.
  struct Copy {
    std::vector<FloatBuffer> arrays = {};  // the parameters first
    int64_t steps = 0;                     // the updates so far
  };
  absl::Status CopyTo(absl::Span<const float> parameters, Copy* copy) const;
  // What a file of a checkpoint has of this part. A chunk's shard_offset is its place in the arrays
  // of a copy.
  CheckpointPart checkpoint_part() const;

  // The sum of an update: this worker's gradient, which may be null if it does not contribute, and
  // what was received, which is null if no other one does. One of them is there.
  struct Sum {
    const float* own = nullptr;  // of the segment
    const Segments* received = nullptr;
    float scale = 1;        // turns the sum into the mean
    float coefficient = 1;  // by which the mean of trained parameters is multiplied
    // By tensor, in place of the config's; empty for the config's. They count for parameters only.
    absl::Span<const Hyperparameters> hyperparameters = {};
  };
  // Whether no worker has a gradient of any tensor of the segment (IsAbsentMark). Then there is
  // nothing to update.
  bool AllAbsent(const RingSegment& segment, const Sum& sum) const;
  // Updates a segment of this part by the mean. Errors: those of RingSums::Add; OUT_OF_RANGE if a
  // parameter or its state leaves the range of float32 or of the encoding.
  // A tensor of which no worker has a gradient stays as it is; under MEAN all of it is marked so.
  absl::Status Update(const RingSegment& segment, int64_t iteration, const Sum& sum,
                      absl::Span<float> parameters);
  // Replaces a segment of this part by the sum, which has one worker's values only, bit by bit.
  // REQUIRES: parameters travel in FLOAT32.
  void Assign(const RingSegment& segment, const Sum& sum, absl::Span<float> parameters);

 private:
  explicit RingPart(const Options& options);

  // What a call of Update has come to.
  struct Progress {
    const RingSegment& segment;
    const int64_t iteration;
    const Sum& sum;
    float* const masters;  // of the segment
    absl::Status status = {};
  };
  bool IsAbsent(const RingSegment& segment, const RingRun& run, const Sum& sum) const;
  // Updates `count` elements from `first` of the segment on, tensor by tensor.
  void ApplyRun(Progress& progress, int64_t first, const UnalignedFloat* gradient, int64_t count);
  // Updates a run of one tensor, number `run_number` of the plan's, that is short enough for the
  // cache.
  absl::Status Apply(const Progress& progress, size_t run_number, int tensor, int64_t first,
                     const UnalignedFloat* gradient, int64_t count);

  const PlannedConfig& config_;
  const RingPlan& plan_;
  const int place_;
  const int rank_;
  const Encoding encoding_;  // of parameters on the wire
  const bool has_marks_;     // workers say of which tensors they have no gradient
  const bool is_mean_;       // optimizer.kind MEAN
  const RingSums sums_;
  const TensorOptimizers optimizers_;
  std::vector<int64_t> offsets_;  // by segment: in the part's arrays, or -1
  std::vector<FloatBuffer> slots_;
  FloatBuffer masters_;  // empty if parameters travel in float32
  // By run of the plan: the updates so far, and whether the one under way leaves it out.
  std::vector<int64_t> steps_;
  std::vector<uint8_t> is_absent_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_PART_H_
