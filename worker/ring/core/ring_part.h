#ifndef EVENSHARD_WORKER_RING_CORE_RING_PART_H_
#define EVENSHARD_WORKER_RING_CORE_RING_PART_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/float_buffer.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/shard_file_writer.h"
#include "common/optimizer/tensor_optimizers.h"
#include "common/placement/planned_config.h"
#include "common/placement/ring_plan.h"
#include "common/wire/chunk_codec.h"

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
  };
  // Updates a segment of this part by the mean. Errors: those of RingSums::Add; OUT_OF_RANGE if a
  // parameter or its state leaves the range of float32 or of the encoding.
  absl::Status Update(const RingSegment& segment, int64_t iteration, const Sum& sum,
                      absl::Span<float> parameters);

 private:
  explicit RingPart(const Options& options);

  // What a call of Update has come to.
  struct Progress {
    const RingSegment& segment;
    const int64_t iteration;
    const Sum& sum;
    float* const masters;  // of the segment
    const int64_t step;
    absl::Status status = {};
  };
  // Calls `visit(tensor, begin, count)` for the elements of each tensor in a range of the model's
  // buffer; `begin` is the first one's index in the buffer. Ends with the first error.
  absl::Status VisitTensors(
      int64_t begin, int64_t count,
      absl::FunctionRef<absl::Status(int tensor, int64_t begin, int64_t count)> visit) const;
  // Updates `count` elements from `first` of the segment on, tensor by tensor.
  void ApplyRun(Progress& progress, int64_t first, const UnalignedFloat* gradient, int64_t count);
  // Updates a run of one tensor that is short enough for the cache.
  absl::Status Apply(const Progress& progress, int tensor, int64_t first,
                     const UnalignedFloat* gradient, int64_t count);

  const PlannedConfig& config_;
  const RingPlan& plan_;
  const int place_;
  const int rank_;
  const Encoding encoding_;  // of parameters on the wire
  const TensorOptimizers optimizers_;
  std::vector<int64_t> offsets_;  // by segment: in the part's arrays, or -1
  std::vector<FloatBuffer> slots_;
  FloatBuffer masters_;         // empty if parameters travel in float32
  std::vector<int64_t> steps_;  // by segment: the updates so far
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_PART_H_
