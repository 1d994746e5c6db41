#ifndef EVENSHARD_COMMON_PLACEMENT_PLAN_RING_PLAN_H_
#define EVENSHARD_COMMON_PLACEMENT_PLAN_RING_PLAN_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// The version of the rules by which rings are planned, which is part of every fingerprint.
inline constexpr uint32_t kRingPlanVersion = 3;

// A range [begin, begin + size) of a worker's buffers (Model::buffer_size()), in floats, that has a
// part for each worker. It has whole tensors, or a piece of one that is larger than a bucket, with
// the gaps behind tensors.
struct RingBucket {
  int64_t begin = 0;
  int64_t size = 0;
  int first_layer = 0;  // whose tensors it has
  int last_layer = 0;
  uint32_t first_segment = 0;
  uint32_t segments = 0;
};

// The unit of transfer: at most chunk_bytes of a bucket's part. It leaves when the gradients of all
// its layers exist, in whatever order they come. An id is an index in RingPlan::segments().
struct RingSegment {
  uint32_t id = 0;
  int first_layer = 0;  // whose tensors it has
  int last_layer = 0;
  int part = 0;       // the place in the ring of the worker that applies the optimizer to it
  int64_t begin = 0;  // in a worker's buffers, a multiple of 16
  int64_t size = 0;   // floats, above 0
  // The role of all its tensors; kParameter where tensors of several roles share buckets.
  TensorRole role = TensorRole::kParameter;
};

// The part of a tensor that is in a segment: the elements [begin, end) of a worker's buffers, of
// which there is one at least, since a gap is shorter than the unit in which segments are cut.
struct RingRun {
  int tensor = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// How the workers of a ring reduce a model's gradient. Buckets are in the order in which the
// backward pass fills them, from the last layer to the first. Each is cut into one part for each
// worker, which differ by at most 16 floats, and each part into segments. A worker's place in the
// ring is its rank, or with recovery its index among the ranks that are left. A pure function of
// its arguments, so every worker computes the same plan. Immutable.
class RingPlan {
 public:
  struct Options {
    int workers = 0;
    int64_t bucket_bytes = 0;
    int64_t first_bucket_bytes = 0;  // the bucket that is filled first ends when it has so many
    int64_t chunk_bytes = 0;
    // Tensors of different roles are in different buckets, and so are large buffers, so that what
    // is not trained travels when it has changed. So it is for models that workers bring.
    bool separates_roles = false;
  };

  // The options that a valid config of a ring asks for.
  static Options OptionsOf(const ClusterConfig& config);

  // Errors: INVALID_ARGUMENT if there would be more than 2^24 segments. REQUIRES: all tensors are
  // FLOAT32; `options` is as the checks of a config leave it.
  static absl::StatusOr<RingPlan> Create(const Model& model, const Options& options);

  const std::vector<RingBucket>& buckets() const { return buckets_; }
  const std::vector<RingSegment>& segments() const { return segments_; }
  // The segments with tensors of a layer, none if it has no tensors.
  absl::Span<const uint32_t> segments_of_layer(int layer) const { return of_layer_[layer]; }
  int workers() const { return static_cast<int>(part_sizes_.size()); }
  // The tensors of a segment, in model order, and the number of the first of them among all runs.
  absl::Span<const RingRun> runs(const RingSegment& segment) const {
    const size_t first = first_run(segment);
    return absl::MakeConstSpan(runs_).subspan(first, first_runs_[segment.id + 1] - first);
  }
  size_t first_run(const RingSegment& segment) const { return first_runs_[segment.id]; }
  size_t run_count() const { return runs_.size(); }
  // The floats of all segments of a worker's part.
  int64_t part_size(int place) const { return part_sizes_[place]; }
  // Equal for equal plans of equal models, on every machine and in every build.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  // Appends the tensors of the segment that was made last.
  void AddRuns(const Model& model);
  // Gives the segment that was made last its layers, which are in a bucket, and them the segment.
  void AddLayers(const Model& model, const RingBucket& bucket);

  std::vector<RingBucket> buckets_;
  std::vector<RingSegment> segments_;
  std::vector<RingRun> runs_;
  std::vector<size_t> first_runs_ = {0};  // by segment, and the number of runs
  std::vector<std::vector<uint32_t>> of_layer_;
  std::vector<int64_t> part_sizes_;
  uint64_t fingerprint_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLAN_RING_PLAN_H_
