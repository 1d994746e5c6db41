#include "server/store/parameter_store.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/config/asynchrony.h"
#include "common/config/optimizer_arrays.h"
#include "common/optimizer/aggregate.h"
#include "common/placement/model/initializer.h"
#include "common/wire/non_finite.h"

namespace evenshard {
namespace {

// An update goes on by so many elements at a time, so that the check of its results finds them in
// the cache.
constexpr int64_t kCheckedElements = 8192;

// Takes what was agreed on for a later iteration than `latest`; with `or_same` for the same one
// too.
template <typename Agreed>
bool TakeLater(const Agreed& agreed, bool or_same, std::optional<Agreed>& latest) {
  const bool takes = !latest.has_value() || latest->iteration < agreed.iteration ||
                     (or_same && latest->iteration == agreed.iteration);
  if (takes) latest = agreed;
  return takes;
}

}  // namespace

void StoredChunk::StartSum(const Segments& gradient, Encoding encoding) {
  CountedTime time(&counters_->aggregate_nanoseconds);
  Decode(encoding, gradient, {sum_, static_cast<size_t>(info_.size)});
}

void StoredChunk::AddToSum(const Segments& gradient, Encoding encoding) {
  CountedTime time(&counters_->aggregate_nanoseconds);
  ForEachDecodedRun(encoding, gradient, info_.size,
                    [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                      AddGradient(sum_ + first, floats, count);
                    });
}

absl::Status StoredChunk::AddSquares(const SquareRule& rule, float scale, int64_t iteration,
                                     SquareSum* squares) const {
  CountedTime time(&counters_->aggregate_nanoseconds);
  if (rule.Add(sum_, info_.size, scale, squares)) return absl::OkStatus();
  // All may be finite, and their squares not.
  const int64_t bad = std::max<int64_t>(0, FindNonFinite(sum_, info_.size));
  return OutOfRange("the sum of the gradients", bad, iteration);
}

absl::Status StoredChunk::ApplySum(float scale, const UpdateRate& rate) {
  CountedTime time(&counters_->apply_nanoseconds);
  if (const int64_t bad = FindNonFinite(sum_, info_.size); bad >= 0 && must_be_finite_) {
    return OutOfRange("the sum of the gradients", bad, rate.iteration);
  }
  CountUpdate(rate);
  const auto apply = [&] {
    mutex.AssertHeld();  // clang's analysis looks at a lambda by itself
    return ApplyRun(0, info_.size, /*sum=*/nullptr, sum_, scale, rate, /*sent=*/nullptr);
  };
  return Updated(Rounded(rate, apply), rate.iteration);
}

absl::Status StoredChunk::ApplyGradient(const Segments& gradient, Encoding encoding, float scale,
                                        const UpdateRate& rate) {
  return Apply(/*sum=*/nullptr, gradient, encoding, scale, rate);
}

absl::Status StoredChunk::ApplySumAndGradient(const Segments& gradient, Encoding encoding,
                                              float scale, const UpdateRate& rate) {
  return Apply(sum_, gradient, encoding, scale, rate);
}

absl::Status StoredChunk::SetState(const ChunkClock& clock,
                                   const std::vector<uint64_t>& sent_versions,
                                   const Segments& data) {
  const size_t array_bytes = info_.size * sizeof(float);
  const size_t own_arrays = arrays();
  const size_t expected = (own_arrays + sent_.workers()) * array_bytes;
  if (const size_t bytes = SegmentsSize(data); bytes != expected) {
    return absl::InvalidArgumentError(absl::StrCat("the state of chunk ", info_.id, " has ", bytes,
                                                   " bytes instead of ", expected));
  }
  if (sent_versions.size() != sent_.workers()) {
    return absl::InvalidArgumentError(absl::StrCat("the state of chunk ", info_.id,
                                                   " has what was sent to ", sent_versions.size(),
                                                   " workers instead of ", sent_.workers()));
  }
  size_t offset = 0;  // in all arrays together
  for (absl::Span<const char> piece : data) {
    while (!piece.empty()) {
      const size_t in_array = offset % array_bytes;
      const size_t count = std::min(piece.size(), array_bytes - in_array);
      const size_t index = offset / array_bytes;
      float* const array = index < own_arrays ? mutable_array(static_cast<int>(index)).data()
                                              : sent_.mutable_copy(index - own_arrays);
      std::memcpy(reinterpret_cast<char*>(array) + in_array, piece.data(), count);
      piece.remove_prefix(count);
      offset += count;
    }
  }
  clock_ = clock;
  if (rounding_.has_value()) rounding_->Forget();
  sent_.SetVersions(sent_versions);
  return absl::OkStatus();
}

absl::Status StoredChunk::Apply(const float* sum, const Segments& gradient, Encoding encoding,
                                float scale, const UpdateRate& rate) {
  CountedTime time(&counters_->apply_nanoseconds);
  // Calls `visit(first, floats, count)` for every run of the gradient. Returns the first element
  // that a call returned, or -1.
  const auto first_bad = [&](auto visit) {
    int64_t bad = -1;
    ForEachDecodedRun(encoding, gradient, info_.size,
                      [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                        if (const int64_t in_run = visit(first, floats, count); bad < 0)
                          bad = in_run;
                      });
    return bad;
  };
  if (sum != nullptr && must_be_finite_) {
    const int64_t bad = first_bad([&](int64_t first, const UnalignedFloat* floats, int64_t count) {
      const int64_t in_run = FindNonFiniteSum(sum + first, floats, count);
      return in_run < 0 ? -1 : first + in_run;
    });
    if (bad >= 0) return OutOfRange("the sum of the gradients", bad, rate.iteration);
  }
  sent_.Keep(rate.sent_to, parameters_, clock_.version);
  const float* const sent = sent_.Find(rate.worker, rate.base_version);
  CountUpdate(rate);
  const auto apply = [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
    mutex.AssertHeld();  // clang's analysis looks at a lambda by itself
    return ApplyRun(first, count, sum, floats, scale, rate, sent);
  };
  return Updated(Rounded(rate, [&] { return first_bad(apply); }), rate.iteration);
}

int64_t StoredChunk::Rounded(const UpdateRate& rate, absl::FunctionRef<int64_t()> update) {
  if (!rounding_.has_value()) return update();
  if (rate.assigned.has_value()) {
    rounding_->Forget();
    return update();
  }
  thread_local std::vector<float> before;
  before.assign(parameters_.begin(), parameters_.end());
  const int64_t bad = update();
  rounding_->Round(before, clock_.version, parameters_);
  // A change may be larger than the encoding can say, although what it leads to is finite.
  return bad < 0 && must_be_finite_ ? FindNonFinite(parameters_.data(), info_.size) : bad;
}

void StoredChunk::CountUpdate(const UpdateRate& rate) {
  if (!rate.assigned.has_value()) {
    ++clock_.version;
    ++clock_.steps;
    ++counters_->updates;
  } else if (rate.assigned->array == 0) {
    ++clock_.version;
  } else {
    clock_.steps = rate.assigned->steps;
  }
}

int64_t StoredChunk::ApplyRun(int64_t first, int64_t count, const float* sum,
                              const UnalignedFloat* gradient, float scale, const UpdateRate& rate,
                              const float* sent) {
  const bool sets = is_buffer_ || rate.assigned.has_value();
  const absl::Span<float> set_array =
      mutable_array(rate.assigned.has_value() ? static_cast<int>(rate.assigned->array) : 0);
  const UpdateNumbers numbers = optimizer_->NumbersOf(rate.iteration, rate.pushed);
  const bool is_per_worker = optimizer_arrays() > static_cast<size_t>(optimizer_->slots());
  const size_t first_slot = is_per_worker ? rate.worker * optimizer_->slots() : 0;
  int64_t bad = -1;
  for (int64_t begin = first; begin < first + count; begin += kCheckedElements) {
    const int64_t size = std::min(kCheckedElements, first + count - begin);
    OptimizerSpan run{parameters_.subspan(begin, size)};
    for (int slot = 0; slot < optimizer_->slots(); ++slot) {
      run.slots[slot] = slots_[first_slot + slot] + begin;
    }
    if (sum != nullptr) run.sum = sum + begin;
    if (sets) {
      std::memcpy(set_array.data() + begin, gradient + (begin - first), size * sizeof(float));
    } else if (correction_ != nullptr) {
      ApplyCorrected(run, begin, gradient + (begin - first), scale, numbers, sent);
    } else {
      optimizer_->Apply(run, gradient + (begin - first), scale, numbers,
                        static_cast<int64_t>(clock_.steps));
    }
    if (!must_be_finite_ || bad >= 0) continue;  // the update is completed all the same
    int64_t in_run = FindNonFinite(run.parameters.data(), size);
    for (int slot = 0; slot < optimizer_->slots() && in_run < 0; ++slot) {
      in_run = FindNonFinite(run.slots[slot], size);
    }
    if (has_mean_square() && in_run < 0) in_run = FindNonFinite(slots_.back() + begin, size);
    if (in_run >= 0) bad = begin + in_run;
  }
  return bad;
}

void StoredChunk::ApplyCorrected(const OptimizerSpan& run, int64_t begin,
                                 const UnalignedFloat* gradient, float scale,
                                 const UpdateNumbers& numbers, const float* sent) {
  const auto size = static_cast<int64_t>(run.parameters.size());
  float* const parameters = run.parameters.data();
  float* const mean_square = has_mean_square() ? slots_.back() + begin : nullptr;
  float corrected[kCheckedElements];
  float before[kCheckedElements];
  correction_->Correct(gradient, scale, parameters, sent == nullptr ? nullptr : sent + begin,
                       mean_square, corrected, size);
  if (correction_->needs_steps()) std::copy_n(parameters, size, before);
  optimizer_->Apply(run, corrected, /*scale=*/1, numbers, static_cast<int64_t>(clock_.steps));
  if (correction_->needs_steps()) Correction::TakeSteps(before, parameters, mean_square, size);
}

absl::Status StoredChunk::Updated(int64_t bad, int64_t iteration) const {
  if (bad < 0) return absl::OkStatus();
  return OutOfRange("a parameter, or the optimizer's state of it,", bad, iteration);
}

absl::Status StoredChunk::OutOfRange(absl::string_view what, int64_t element,
                                     int64_t iteration) const {
  return WithKind(
      ErrorDetail::RUN_FAILED,
      absl::OutOfRangeError(absl::StrCat(
          what, " leaves the range of float32 in the update of iteration ", iteration, ": ",
          tensor_name_, " element ", info_.begin + element, " (chunk ", info_.id, ")")));
}

absl::StatusOr<std::unique_ptr<ParameterStore>> ParameterStore::Create(const PlannedConfig& config,
                                                                       int shard) {
  const Plan& plan = config.plan();
  const int64_t floats = plan.shard_buffer_size(shard);
  std::unique_ptr<ParameterStore> store(new ParameterStore());
  store->optimizers_ = std::make_unique<const TensorOptimizers>(
      config.proto().optimizer(), config.proto().update().clip_value(), config.model());
  const ExchangeConfig& exchange = config.proto().exchange();
  const int arrays = StateArrays(config.proto());
  const int slots = arrays - (exchange.has_update_encoding() ? 1 : 0);

  const auto allocate = [&](FloatBuffer& buffer) -> absl::Status {
    ASSIGN_OR_RETURN(buffer, FloatBuffer::Allocate(floats));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(allocate(store->parameters_));
  store->state_.resize(arrays);
  for (FloatBuffer& array : store->state_) RETURN_IF_ERROR(allocate(array));
  const Asynchrony::Correction correction = CorrectionOf(config.proto());
  if (correction != Asynchrony::NONE) {
    store->correction_.emplace(correction, LambdaOf(config.proto().update().asynchrony()));
    store->sent_.resize(config.workers());
    for (FloatBuffer& sent : store->sent_) RETURN_IF_ERROR(allocate(sent));
  }
  // Otherwise each gradient is an update by itself and is applied as received.
  if ((config.is_synchronous() && config.workers() > 1) || config.clips_mean()) {
    RETURN_IF_ERROR(allocate(store->sums_));
  }

  store->index_of_.assign(plan.chunks().size(), -1);
  for (const uint32_t id : plan.chunks_of_shard(shard)) {
    const Chunk& chunk = plan.chunks()[id];
    const absl::Span<float> parameters =
        store->parameters_.span().subspan(chunk.shard_offset, chunk.size);
    const Tensor& tensor = config.model().tensors()[chunk.tensor];
    const bool is_trained = tensor.role == TensorRole::kParameter;
    const auto of_chunk = [&](std::vector<FloatBuffer>& buffers, size_t count) {
      std::vector<float*> arrays;
      for (size_t i = 0; i < count && is_trained; ++i) {
        arrays.push_back(buffers[i].data() + chunk.shard_offset);
      }
      return arrays;
    };
    std::optional<UpdateRounding> rounding;
    if (is_trained && exchange.has_update_encoding()) {
      rounding.emplace(exchange.update_encoding(),
                       store->state_.back().span().subspan(chunk.shard_offset, chunk.size));
    }
    InitializeParameters(config.proto().training().seed(), tensor, chunk.begin, parameters);
    float* const sum =
        store->sums_.data() == nullptr ? nullptr : store->sums_.data() + chunk.shard_offset;
    store->index_of_[id] = static_cast<int>(store->chunks_.size());
    store->chunks_.emplace_back(
        chunk, tensor, config.MustBeFinite(chunk), config.is_from_workers(), parameters,
        of_chunk(store->state_, slots), std::move(rounding), sum,
        of_chunk(store->sent_, store->sent_.size()), &store->optimizers_->Of(chunk.tensor),
        is_trained && store->correction_ ? &*store->correction_ : nullptr, &store->counters_);
  }
  return store;
}

bool ParameterStore::Learn(const AgreedNorm& norm) {
  absl::MutexLock lock(&agreed_mutex_);
  return TakeLater(norm, /*or_same=*/false, agreed_norm_);
}

bool ParameterStore::Learn(const AgreedSet& set) {
  absl::MutexLock lock(&agreed_mutex_);
  return TakeLater(set, /*or_same=*/false, agreed_set_);
}

void ParameterStore::Follow(const AgreedNorm& norm) {
  absl::MutexLock lock(&agreed_mutex_);
  TakeLater(norm, /*or_same=*/true, agreed_norm_);
}

void ParameterStore::Follow(const AgreedSet& set) {
  absl::MutexLock lock(&agreed_mutex_);
  TakeLater(set, /*or_same=*/true, agreed_set_);
}

void ParameterStore::ForgetAgreed() {
  absl::MutexLock lock(&agreed_mutex_);
  agreed_norm_.reset();
  agreed_set_.reset();
}

int ParameterStore::IndexOf(uint32_t chunk_id) const {
  return chunk_id < index_of_.size() ? index_of_[chunk_id] : -1;
}

}  // namespace evenshard
