#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_GRADIENT_ENCODER_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_GRADIENT_ENCODER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/float_buffer.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"

namespace evenshard {

// Encodes what a worker pushes in another encoding than its memory has. With
// exchange.error_feedback (error_feedback.h) it keeps a residual e of each element of a gradient in
// a block-scaled encoding: a push of the gradient g with the weight w, of which the memory has w g,
// is C(w g + w e), and e becomes what is left of it when the push is answered, divided by w. So it
// counts as what was lost did, whatever the weight of either push.
// With update.late: CARRY each gradient has an e, which becomes 0 when the push is answered. What
// it has is weighted already; w stands for 1 above.
// With either, e becomes g + e if the answer is that the push was dropped.
//
// Until the answer e stays, so that every repeat of the push has the same bytes. Without a push, e
// stays too; so does that of an element for which the new one is not finite.
//
// Thread-safe, except for Reset.
class GradientEncoder {
 public:
  // `config` must outlive the encoder. Errors: RESOURCE_EXHAUSTED for the residual, a float for
  // each element of the model.
  static absl::StatusOr<std::unique_ptr<GradientEncoder>> Create(const PlannedConfig& config,
                                                                 int rank);

  // Whether what is pushed is another thing than what lies in the worker's memory.
  bool Encodes(const GradientHeader& header) const;
  // Writes EncodedBytes(header.encoding, chunk.size) bytes to `out`. `gradient` is the worker's
  // memory of gradients (PlannedConfig::GradientPlace). Returns false, with nothing of use in
  // `out`, if the push has been answered and e is that of the next one.
  bool Encode(const GradientHeader& header, const char* gradient, char* out);

  // The push of a chunk has been answered, maybe as `dropped`. Does nothing if Encode was not
  // called for it. REQUIRES: the gradient is as it was then.
  void Settle(const Chunk& chunk, uint64_t iteration, const char* gradient, bool dropped);

  // Every e is zero again, as at first. REQUIRES: no push is pending.
  void Reset();

 private:
  struct ChunkState {
    absl::Mutex mutex;                                       // guards the chunk's residual too
    std::optional<uint64_t> encoded ABSL_GUARDED_BY(mutex);  // the iteration of the latest push
    float weight ABSL_GUARDED_BY(mutex) = 1;                 // of that push
    std::optional<uint64_t> settled ABSL_GUARDED_BY(mutex);  // the latest that e has in it
  };

  GradientEncoder(const PlannedConfig& config, int rank);

  // `weight` is that of the residual.
  void EncodeChunk(const Chunk& chunk, uint64_t iteration, float weight, const char* gradient,
                   char* out) const;
  bool keeps_residual() const { return feeds_back_ || carries_; }
  // Returns what is encoded of the elements [begin, begin + scratch.size()) of a chunk. It lies in
  // `scratch` or in the gradient.
  absl::Span<const float> ValuesOf(const Chunk& chunk, int64_t begin, float weight,
                                   const char* gradient, absl::Span<float> scratch) const;
  Rounding RoundingOf(uint64_t iteration, const Chunk& chunk, int64_t begin) const;

  const PlannedConfig& config_;
  const uint32_t rank_;
  const bool feeds_back_;
  const bool carries_;
  FloatBuffer residual_;            // if it keeps one, as a worker's buffer of floats
  std::vector<ChunkState> states_;  // if it keeps residuals, by chunk
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_GRADIENT_ENCODER_H_
