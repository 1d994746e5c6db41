#ifndef EVENSHARD_WORKER_RING_CORE_RING_NORM_H_
#define EVENSHARD_WORKER_RING_CORE_RING_NORM_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/optimizer/square_sum.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"

namespace evenshard {

// What a worker has of the squared norm of an iteration's mean gradient, by which a ring clips it
// (common/optimizer/norm_clipping.h): its own part's squares, and what others have sent of theirs.
// The norm is known when the squares of all parts are there. They add up to the same in any order,
// so that all workers know the same norm. A worker whose part of the model is empty sends nothing.
//
// On the wire, the squares of part p are a chunk of 32 bytes, with the id that is p above
// the plan's last one. Not thread-safe, except for the const methods.
class RingNorm {
 public:
  // Both must outlive the object.
  RingNorm(const PlannedConfig* config, const RingPlan* plan, int place);

  // Whether the config clips at all. Otherwise only this method, and is_missing, may be called.
  bool clips() const { return rule_.has_value(); }

  // Returns the squares of a segment's trained parameters, of `scale` times the sum that
  // `gradients`, a worker's buffer, has there. Errors: OUT_OF_RANGE if one of the products leaves
  // the range of float32.
  absl::StatusOr<SquareSum> SquaresOf(const RingSegment& segment, uint64_t iteration, float scale,
                                      absl::Span<const float> gradients) const;

  void Begin();
  // Adds the squares of a segment of this worker's part. Returns whether it was the last one.
  bool AddOwn(const SquareSum& squares);
  // Adds the squares of another worker's part. Returns its place. Errors: INVALID_ARGUMENT if the
  // chunk is none of these, or has come before.
  absl::StatusOr<int> AddReceived(uint32_t chunk, const Segments& data);
  // The squares of a part that is there, for others, and the id of their chunk.
  const SquareSum& part(int place) const { return parts_[place]; }
  uint32_t ChunkOf(int place) const {
    return static_cast<uint32_t>(plan_.segments().size()) + static_cast<uint32_t>(place);
  }

  // Whether the norm is not known yet.
  bool is_missing() const { return missing_ > 0; }
  // By what the mean is multiplied. REQUIRES: the norm is known. Errors: those of CheckNorm.
  absl::StatusOr<float> Coefficient(uint64_t iteration) const;

 private:
  const PlannedConfig& config_;
  const RingPlan& plan_;
  const int place_;
  std::optional<SquareRule> rule_;
  uint32_t own_segments_ = 0;
  uint32_t left_ = 0;  // of them
  int missing_ = 0;    // parts
  std::vector<bool> is_there_;
  std::vector<SquareSum> parts_;  // by place
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_NORM_H_
