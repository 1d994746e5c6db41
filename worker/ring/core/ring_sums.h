#ifndef EVENSHARD_WORKER_RING_CORE_RING_SUMS_H_
#define EVENSHARD_WORKER_RING_CORE_RING_SUMS_H_

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "proto/encoding.pb.h"

namespace evenshard {

// Errors that end the run of a ring (RUN_FAILED), of an element at an index of a worker's buffers.
// INVALID_ARGUMENT: "worker 1 pushed a gradient that is not finite at iteration 3: fc6/weight
// element 17 is the first".
absl::Status NotFinite(const Model& model, int rank, Encoding encoding, int64_t iteration,
                       int64_t element);
// OUT_OF_RANGE: "the sum of the gradients leaves the range of float32 in iteration 3: ...".
absl::Status OutOfRange(const Model& model, absl::string_view what, Encoding encoding,
                        int64_t iteration, int64_t element);

// Stands for every element of a tensor of which a worker has no gradient, in a ring whose workers
// bring the model (RingMarks). Adding it changes no number, and a sum is -0.0 only if all of it is.
inline bool IsAbsentMark(float element) { return element == 0 && std::signbit(element); }

// The arithmetic on the sums of gradients that pass through a worker. A sum takes the place of the
// worker's own gradient, in its buffer, which is float32 whatever the encoding on the wire. A
// gradient is checked where it enters a sum, and a sum where it is made, so what was received is
// finite, unless it need not be (optimizer.kind MEAN, buffers). Thread-safe for different segments.
class RingSums {
 public:
  // `config` must outlive the sums.
  RingSums(const PlannedConfig* config, int rank)
      : config_(*config),
        encoding_(config->proto().exchange().gradient_encoding()),
        is_any_number_allowed_(config->proto().optimizer().kind() == OptimizerConfig::MEAN),
        rank_(rank) {}

  Encoding encoding() const { return encoding_; }
  // Whether the segment's sum, and what is made of it, must be finite.
  bool MustBeFinite(const RingSegment& segment) const {
    return !is_any_number_allowed_ && segment.role != TensorRole::kBuffer;
  }

  // Checks this worker's gradient of a segment, before it leaves as the first of a sum.
  // Errors: NotFinite.
  absl::Status Check(const RingSegment& segment, int64_t iteration,
                     absl::Span<const float> gradients) const;
  // Adds a received sum to this worker's gradient. Errors: NotFinite, OutOfRange.
  absl::Status Add(const RingSegment& segment, int64_t iteration, const Segments& received,
                   absl::Span<float> gradients) const;
  // Puts a received sum in the place of a gradient that does not contribute.
  void Store(const RingSegment& segment, const Segments& received,
             absl::Span<float> gradients) const;
  // Writes EncodedBytes(encoding(), segment.size) bytes of a sum or, if `is_own`, of this worker's
  // gradient. Errors: NotFinite, OutOfRange, if the encoding cannot represent a value.
  absl::Status Encode(const RingSegment& segment, int64_t iteration, bool is_own,
                      absl::Span<const float> gradients, char* out) const;

 private:
  const PlannedConfig& config_;
  const Encoding encoding_;
  const bool is_any_number_allowed_;
  const int rank_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_SUMS_H_
