#ifndef EVENSHARD_SERVER_STORE_PARAMETER_STORE_H_
#define EVENSHARD_SERVER_STORE_PARAMETER_STORE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/element_loop.h"
#include "common/base/float_buffer.h"
#include "common/checkpoint/chunk_clock.h"
#include "common/optimizer/optimizer.h"
#include "common/optimizer/square_sum.h"
#include "common/optimizer/tensor_optimizers.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"
#include "server/store/correction.h"
#include "server/store/registered_states.h"
#include "server/store/sent_parameters.h"
#include "server/store/shard_counters.h"
#include "server/store/update_rounding.h"

namespace evenshard {

// An update that replaces an array of a chunk's state by what is pushed.
struct Assignment {
  uint32_t array = 0;  // see StoredChunk::array
  uint64_t steps = 0;  // for those of the optimizer's state: ChunkClock::steps
};

// What decides how an update changes a chunk.
struct UpdateRate {
  // How many iterations of training lie before it. The config's schedule goes by that.
  int64_t iteration = 0;
  Hyperparameters pushed = {};  // with the gradients
  // Whose gradient it is, where each worker's have a velocity of their own.
  uint32_t worker = 0;
  // Otherwise the optimizer is applied.
  std::optional<Assignment> assigned = {};
  // With a correction: the version that the gradient was computed from, and who was sent the chunk
  // as it was before the update.
  uint64_t base_version = 0;
  SentParameters::Ranks sent_to = {};
};

// The square of the norm of an iteration's mean gradient over the whole model, on which the slots
// of a run have agreed (server/agreement/clipping.h).
struct AgreedNorm {
  uint64_t iteration = 0;
  double squared = 0;
};

// The workers whose gradients count in an iteration under QUORUM, on which the slots of a run have
// agreed (server/agreement/quorum.h).
struct AgreedSet {
  uint64_t iteration = 0;
  std::vector<uint64_t> counted_before = {};  // see QuorumSet

  bool Contains(size_t rank) const { return counted_before[rank] == iteration + 1; }
};

// One chunk of a shard: its parameters, the optimizer's state, the sum of the gradients gathered
// for the next update, and the arithmetic on them. Gradients are read from where they were
// received. ParameterStore owns the memory.
class StoredChunk {
 public:
  // All objects that the arguments refer to must outlive the chunk.
  StoredChunk(const Chunk& info, const Tensor& tensor, bool must_be_finite, bool begins_empty,
              absl::Span<float> parameters, std::vector<float*> slots,
              std::optional<UpdateRounding> rounding, float* sum, std::vector<float*> sent,
              const Optimizer* optimizer, const Correction* correction, ShardCounters* counters)
      : info_(info),
        tensor_name_(tensor.name),
        is_buffer_(tensor.role == TensorRole::kBuffer),
        must_be_finite_(must_be_finite),
        begins_empty_(begins_empty),
        parameters_(parameters),
        slots_(std::move(slots)),
        rounding_(std::move(rounding)),
        arrays_(1 + static_cast<int>(slots_.size()) + (rounding_.has_value() ? 1 : 0)),
        sum_(sum),
        optimizer_(optimizer),
        correction_(correction),
        counters_(counters),
        sent_(std::move(sent), info.size) {}

  // Guards everything in the chunk that changes. Acquired before any other lock of the server.
  absl::Mutex mutex;

  const Chunk& info() const { return info_; }

  // How often the parameters have changed.
  uint64_t version() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return clock_.version; }
  // How far the chunk has come. The update policy counts the exchanges, and each update here the
  // version and the optimizer's steps.
  ChunkClock& mutable_clock() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return clock_; }
  const ChunkClock& clock() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return clock_; }
  // The learning rate of an update.
  double LearningRate(const UpdateRate& rate) const {
    return optimizer_->NumbersOf(rate.iteration, rate.pushed).learning_rate;
  }
  // Whether the chunk has no parameters yet: the first exchange assigns them
  // (model.from_workers).
  bool NeedsInitial() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return begins_empty_ && clock_.version == 0;
  }
  absl::Span<const float> parameters() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return parameters_;
  }
  absl::Span<const float> sum() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return {sum_, static_cast<size_t>(info_.size)};
  }

  // What the latest update has changed, as it goes to the workers; empty if that is not known
  // (UpdateRounding).
  absl::Span<const char> EncodedUpdate() const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return rounding_.has_value() ? rounding_->EncodedUpdate(clock_.version)
                                 : absl::Span<const char>();
  }

  // What the workers were sent, for the correction of their gradients. Note is told of each reply
  // and each pull of theirs, under the lock under which its content is read.
  const SentParameters& sent() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return sent_; }

  // The arrays of the chunk's state: the parameters, then the optimizer's or, with a velocity for
  // each worker, those of one after another, then the mean square of a correction that has one, and
  // the residual of rounded updates.
  int arrays() const { return arrays_; }
  absl::Span<const float> array(int index) const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    return ArrayAt(index);
  }
  absl::Span<float> mutable_array(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return ArrayAt(index);
  }
  // Replaces the whole state by the arrays in `data`, one after another, as little-endian float32:
  // those above, and what was sent to each worker, if it is kept, of these versions. Errors:
  // INVALID_ARGUMENT if there are more or fewer; then nothing has changed.
  absl::Status SetState(const ChunkClock& clock, const std::vector<uint64_t>& sent_versions,
                        const Segments& data) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Sets the sum to a gradient, or adds one to it. The functions that use the sum require a store
  // with sums (see ParameterStore::Create).
  void StartSum(const Segments& gradient, Encoding encoding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void AddToSum(const Segments& gradient, Encoding encoding) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Apply one update with `scale` times the sum, a single gradient as received, or the sum of both,
  // so that the last gradient need not be added to the sum first. A replica applies the sum that
  // the primary has applied with ApplyGradient. Equal states stay equal, bit by bit. Errors:
  // OUT_OF_RANGE, naming the element, if the sum of the gradients leaves the range of float32; then
  // nothing has changed. The same if an updated parameter or its optimizer state leaves that range;
  // then the update has been applied.
  //
  // AddSquares adds the squares of `scale` times the sum, and changes nothing.
  absl::Status AddSquares(const SquareRule& rule, float scale, int64_t iteration,
                          SquareSum* squares) const ABSL_SHARED_LOCKS_REQUIRED(mutex);
  absl::Status ApplySum(float scale, const UpdateRate& rate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status ApplyGradient(const Segments& gradient, Encoding encoding, float scale,
                             const UpdateRate& rate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status ApplySumAndGradient(const Segments& gradient, Encoding encoding, float scale,
                                   const UpdateRate& rate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

 private:
  absl::Span<float> ArrayAt(int index) const ABSL_SHARED_LOCKS_REQUIRED(mutex) {
    if (index == 0) return parameters_;
    const size_t slot = index - 1;
    return slot < slots_.size() ? absl::Span<float>(slots_[slot], info_.size)
                                : rounding_->residual();
  }
  absl::Status Apply(const float* sum, const Segments& gradient, Encoding encoding, float scale,
                     const UpdateRate& rate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Counts an update that is about to be made.
  void CountUpdate(const UpdateRate& rate) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Runs `update`, which changes the whole chunk and returns the first element that is not finite
  // then, or -1, and rounds what it has changed.
  int64_t Rounded(const UpdateRate& rate, absl::FunctionRef<int64_t()> update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Updates `count` elements from `first` on; `sum` is the chunk's, or null, and `sent` is what the
  // worker computed the gradient from, or null. Returns the first element that is not finite then,
  // or -1.
  int64_t ApplyRun(int64_t first, int64_t count, const float* sum, const UnalignedFloat* gradient,
                   float scale, const UpdateRate& rate, const float* sent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // Applies the optimizer to elements of which there are at most kCheckedElements, from `begin` on,
  // with a gradient that is corrected first.
  void ApplyCorrected(const OptimizerSpan& run, int64_t begin, const UnalignedFloat* gradient,
                      float scale, const UpdateNumbers& numbers, const float* sent)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // The arrays of the optimizer's state, and the mean square of the correction behind them.
  size_t optimizer_arrays() const { return slots_.size() - (has_mean_square() ? 1 : 0); }
  bool has_mean_square() const { return correction_ != nullptr && correction_->has_mean_square(); }
  // Returns what an update has come to that left element `bad` not finite, or none where it is -1.
  absl::Status Updated(int64_t bad, int64_t iteration) const;
  absl::Status OutOfRange(absl::string_view what, int64_t element, int64_t iteration) const;

  const Chunk& info_;
  const std::string& tensor_name_;
  const bool is_buffer_;       // an update replaces the values
  const bool must_be_finite_;  // PlannedConfig::MustBeFinite
  const bool begins_empty_;
  const absl::Span<float> parameters_;
  const std::vector<float*> slots_;
  std::optional<UpdateRounding> rounding_ ABSL_GUARDED_BY(mutex);
  const int arrays_;
  float* const sum_;
  const Optimizer* const optimizer_;
  const Correction* const correction_;  // null if gradients are applied as they are
  ShardCounters* const counters_;
  ChunkClock clock_ ABSL_GUARDED_BY(mutex);
  SentParameters sent_ ABSL_GUARDED_BY(mutex);
};

// All parameters that a shard owns, by chunk. Each chunk has a mutex of its own, and the list of
// chunks does not change.
class ParameterStore {
 public:
  // Allocates and initialises the memory of `shard`. The store has sums only if gradients are added
  // up, that is under SYNC and QUORUM with several workers or with clipping by norm. `config` must
  // outlive the store. Errors: RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<ParameterStore>> Create(const PlannedConfig& config,
                                                                int shard);

  // The chunks in the order of their ids.
  std::deque<StoredChunk>& chunks() { return chunks_; }
  // Returns the index of a chunk in chunks(), or -1 if this shard does not own it.
  int IndexOf(uint32_t chunk_id) const;

  // The latest norm and the latest set of workers that are known here. They are part of the slot's
  // state: whoever has a chunk that was updated by them must know them, so that no other ones are
  // agreed on.
  std::optional<AgreedNorm> agreed_norm() const {
    absl::MutexLock lock(&agreed_mutex_);
    return agreed_norm_;
  }
  std::optional<AgreedSet> agreed_set() const {
    absl::MutexLock lock(&agreed_mutex_);
    return agreed_set_;
  }
  // The same of one iteration or worker, without a copy.
  bool KnowsSet(uint64_t iteration) const {
    absl::MutexLock lock(&agreed_mutex_);
    return agreed_set_.has_value() && agreed_set_->iteration == iteration;
  }
  uint64_t CountedBefore(uint32_t rank) const {
    absl::MutexLock lock(&agreed_mutex_);
    return agreed_set_.has_value() ? agreed_set_->counted_before[rank] : 0;
  }
  // Return whether it is newer than the latest; otherwise nothing changes.
  bool Learn(const AgreedNorm& norm);
  bool Learn(const AgreedSet& set);
  // The same for a replica, which takes its primary's of the same iteration too: its own may be
  // from before a handover, and no chunk was updated by it.
  void Follow(const AgreedNorm& norm);
  void Follow(const AgreedSet& set);
  // The slot's state is no longer one that counts.
  void ForgetAgreed();

  // What the workers have registered beside the model; of slot 0 only.
  RegisteredStates& registered_states() { return registered_states_; }

  // What the shard has done since its start.
  ShardCounters& counters() { return counters_; }

 private:
  ParameterStore() = default;

  std::unique_ptr<const TensorOptimizers> optimizers_;
  std::optional<const Correction> correction_;
  FloatBuffer parameters_;
  // The optimizer's arrays, the mean square of a correction, and the residual of rounded updates.
  std::vector<FloatBuffer> state_;
  std::vector<FloatBuffer> sent_;  // by rank, with a correction
  FloatBuffer sums_;
  ShardCounters counters_;
  RegisteredStates registered_states_;
  std::deque<StoredChunk> chunks_;
  std::vector<int> index_of_;         // by chunk id
  mutable absl::Mutex agreed_mutex_;  // acquired after chunks' locks
  std::optional<AgreedNorm> agreed_norm_ ABSL_GUARDED_BY(agreed_mutex_);
  std::optional<AgreedSet> agreed_set_ ABSL_GUARDED_BY(agreed_mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_PARAMETER_STORE_H_
