#ifndef PS_SERVER_PARAMETER_STORE_H_
#define PS_SERVER_PARAMETER_STORE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/chunk_codec.h"
#include "common/config.h"
#include "common/encoding.h"
#include "common/float_buffer.h"
#include "common/unaligned.h"
#include "server/optimizer.h"
#include "server/shard_counters.h"

namespace ps {

// One chunk of a shard: its parameters, the optimizer's state, the sum of the gradients
// of the update being gathered, and the arithmetic on them. Gradients come in the encoding
// of the config and are read where they were received. A view: ParameterStore owns the memory.
class StoredChunk {
 public:
  // All that is referred to must outlive the chunk.
  StoredChunk(const Chunk& info, const std::string& tensor_name, Encoding gradient_encoding,
              OptimizerSpan state, float* sum, const Optimizer* optimizer, ShardCounters* counters)
      : info_(info),
        tensor_name_(tensor_name),
        gradient_encoding_(gradient_encoding),
        state_(state),
        sum_(sum),
        optimizer_(optimizer),
        counters_(counters) {}

  // Guards everything below; taken before any other lock of the server.
  absl::Mutex mutex;

  const Chunk& info() const { return info_; }

  // Updates applied so far.
  uint64_t version() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return version_; }
  absl::Span<const float> parameters() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return state_.parameters;
  }

  // sum = gradient. The store must have been made with sums.
  void StartSum(const Segments& gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // sum += gradient
  void AddToSum(const Segments& gradient) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // One update with `scale` times the sum, or with a gradient as received, or with both: the last
  // gradient of an update need not pass through the sum. Errors: OUT_OF_RANGE naming an element
  // where the sum of the gradients leaves float32's range, with nothing changed; or where the
  // updated parameters or the optimizer's state do, which then is in them.
  absl::Status ApplySum(float scale, int64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status ApplyGradient(const Segments& gradient, int64_t iteration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status ApplySumAndGradient(const Segments& gradient, float scale, int64_t iteration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  absl::Status Apply(const float* sum, const Segments& gradient, float scale, int64_t iteration)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Updates `count` elements from `first` on; `sum` is the chunk's, or null. Returns the first
  // element that is not finite then, or -1.
  int64_t ApplyRun(int64_t first, int64_t count, const float* sum, const UnalignedFloat* gradient,
                   float scale, int64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Counts an update that left element `bad` not finite, or none where it is -1.
  absl::Status Updated(int64_t bad, int64_t iteration);
  absl::Status OutOfRange(absl::string_view what, int64_t element, int64_t iteration) const;

  const Chunk& info_;
  const std::string& tensor_name_;
  const Encoding gradient_encoding_;
  const OptimizerSpan state_;
  float* const sum_;
  const Optimizer* const optimizer_;
  ShardCounters* const counters_;
  uint64_t version_ ABSL_GUARDED_BY(mutex) = 0;
};

// All parameters that a shard owns, in its chunks. The chunks are thread-safe by their
// mutexes; the list of them does not change.
class ParameterStore {
 public:
  // Allocates and initialises the memory of `shard`. Gradient sums are there only
  // where the update policy adds gradients up. `config` and `counters` must outlive
  // the store. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(const Config& config, int shard,
                                                                ShardCounters* counters);

  // The chunks in the order of their ids.
  std::deque<StoredChunk>& chunks() { return chunks_; }
  // The position of a chunk in chunks(), or -1 where this shard does not own it.
  int IndexOf(uint32_t chunk_id) const;

 private:
  ParameterStore() = default;

  std::unique_ptr<const Optimizer> optimizer_;    // for TensorRole::kParameter
  std::unique_ptr<const Optimizer> subtraction_;  // for TensorRole::kRunningStatistic
  FloatBuffer parameters_;
  FloatBuffer slots_[2];
  FloatBuffer sums_;
  std::deque<StoredChunk> chunks_;
  std::vector<int> index_of_;  // by chunk id
};

}  // namespace ps

#endif  // PS_SERVER_PARAMETER_STORE_H_
