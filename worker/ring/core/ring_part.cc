#include "worker/ring/core/ring_part.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "common/config/optimizer_arrays.h"
#include "common/wire/encoding.h"
#include "common/wire/non_finite.h"
#include "worker/ring/core/ring_sums.h"

namespace evenshard {
namespace {

// Elements that are updated and then checked, few enough to stay in the processor's cache.
constexpr int64_t kCheckedElements = 8192;

// Returns an element of what was received, as FLOAT32.
float ElementAt(const Segments& received, int64_t element) {
  size_t offset = static_cast<size_t>(element) * sizeof(float);
  float value = 0;
  size_t copied = 0;
  for (const absl::Span<const char> piece : received) {
    const size_t skipped = std::min(offset, piece.size());
    const size_t count = std::min(piece.size() - skipped, sizeof(float) - copied);
    std::memcpy(reinterpret_cast<char*>(&value) + copied, piece.data() + skipped, count);
    offset -= skipped;
    copied += count;
    if (copied == sizeof(float)) break;
  }
  return value;
}

}  // namespace

RingPart::RingPart(const Options& options)
    : config_(*options.config),
      plan_(*options.plan),
      place_(options.place),
      rank_(options.rank),
      encoding_(config_.proto().exchange().parameter_encoding()),
      has_marks_(config_.is_from_workers()),
      is_mean_(config_.proto().optimizer().kind() == OptimizerConfig::MEAN),
      sums_(options.config, options.rank),
      optimizers_(config_.proto().optimizer(), config_.proto().update().clip_value(),
                  config_.model()),
      offsets_(plan_.segments().size(), -1),
      steps_(plan_.run_count()),
      is_absent_(plan_.run_count()) {
  int64_t offset = 0;
  for (const RingSegment& segment : plan_.segments()) {
    if (segment.part != place_) continue;
    offsets_[segment.id] = offset;
    offset += segment.size;
  }
}

absl::StatusOr<std::unique_ptr<RingPart>> RingPart::Create(const Options& options) {
  std::unique_ptr<RingPart> part(new RingPart(options));
  const int64_t floats = std::max(options.plan->part_size(options.place), kAlignment);
  part->slots_.resize(StateArrays(options.config->proto()));
  for (FloatBuffer& slot : part->slots_) {
    ASSIGN_OR_RETURN(slot, FloatBuffer::Allocate(floats));
  }
  if (part->encoding_ != FLOAT32) {
    ASSIGN_OR_RETURN(part->masters_, FloatBuffer::Allocate(floats));
  }
  return part;
}

absl::Status RingPart::Start(absl::Span<float> parameters) {
  if (encoding_ == FLOAT32) return absl::OkStatus();
  for (const RingSegment& segment : plan_.segments()) {
    const absl::Span<float> values = parameters.subspan(segment.begin, segment.size);
    if (segment.part == place_) {
      std::copy(values.begin(), values.end(), masters_.data() + offsets_[segment.id]);
    }
    if (!FitsEncoding(encoding_, values)) {
      return absl::OutOfRangeError(
          "an initial parameter is beyond what exchange.parameter_encoding can represent");
    }
    RoundTo(encoding_, values);
  }
  return absl::OkStatus();
}

absl::Status RingPart::Restore(CheckpointReader& checkpoint, absl::Span<float> parameters) {
  const std::vector<Tensor>& tensors = config_.model().tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    RETURN_IF_ERROR(checkpoint.ReadParameters(
        static_cast<int>(i), 0, parameters.subspan(tensors[i].offset, tensors[i].size)));
  }
  for (const RingSegment& segment : plan_.segments()) {
    if (segment.part != place_) continue;
    size_t number = plan_.first_run(segment);
    for (const RingRun& run : plan_.runs(segment)) {
      const Tensor& tensor = tensors[run.tensor];
      const int64_t count = run.end - run.begin;
      const int64_t in_tensor = run.begin - tensor.offset;
      const int64_t in_part = offsets_[segment.id] + run.begin - segment.begin;
      const int arrays = OptimizerArrays(config_, tensor);
      for (int i = 0; i < arrays; ++i) {
        RETURN_IF_ERROR(checkpoint.ReadOptimizerArray(i, run.tensor, in_tensor,
                                                      slots_[i].span().subspan(in_part, count)));
      }
      steps_[number++] =
          static_cast<int64_t>(checkpoint.ClockOf(run.tensor, in_tensor, count).steps);
    }
  }
  return Start(parameters);
}

absl::Status RingPart::CopyTo(absl::Span<const float> parameters, Copy* copy) const {
  const int64_t floats = std::max(plan_.part_size(place_), kAlignment);
  copy->arrays.resize(1 + slots_.size());
  for (FloatBuffer& array : copy->arrays) {
    if (array.data() != nullptr) continue;
    ASSIGN_OR_RETURN(array, FloatBuffer::Allocate(floats));
  }
  const auto take = [&](const FloatBuffer& from, FloatBuffer& to) {
    std::copy_n(from.span().data(), floats, to.data());
  };
  for (size_t i = 0; i < slots_.size(); ++i) take(slots_[i], copy->arrays[1 + i]);
  if (encoding_ != FLOAT32) take(masters_, copy->arrays[0]);
  for (const RingSegment& segment : plan_.segments()) {
    if (segment.part != place_) continue;
    copy->steps = steps_[plan_.first_run(segment)];  // with models of the config all have as many
    if (encoding_ != FLOAT32) continue;
    std::copy_n(parameters.data() + segment.begin, segment.size,
                copy->arrays[0].data() + offsets_[segment.id]);
  }
  return absl::OkStatus();
}

CheckpointPart RingPart::checkpoint_part() const {
  CheckpointPart part = {
      .index = place_, .parts = plan_.workers(), .plan_fingerprint = plan_.fingerprint()};
  for (const RingSegment& segment : plan_.segments()) {
    if (segment.part != place_) continue;
    for (const RingRun& run : plan_.runs(segment)) {
      const int64_t in_tensor = run.begin - config_.model().tensors()[run.tensor].offset;
      const int64_t in_part = offsets_[segment.id] + run.begin - segment.begin;
      part.chunks.push_back({.id = static_cast<uint32_t>(part.chunks.size()),
                             .tensor = run.tensor,
                             .begin = in_tensor,
                             .size = run.end - run.begin,
                             .shard = place_,
                             .model_offset = run.begin,
                             .shard_offset = in_part});
      part.slices.push_back({.tensor = run.tensor,
                             .begin = in_tensor,
                             .size = run.end - run.begin,
                             .shard = place_,
                             .shard_offset = in_part});
    }
  }
  return part;
}

absl::Status RingPart::Update(const RingSegment& segment, int64_t iteration, const Sum& sum,
                              absl::Span<float> parameters) {
  const absl::Span<float> values = parameters.subspan(segment.begin, segment.size);
  float* const masters =
      encoding_ == FLOAT32 ? values.data() : masters_.data() + offsets_[segment.id];
  Progress progress = {.segment = segment, .iteration = iteration, .sum = sum, .masters = masters};
  size_t number = plan_.first_run(segment);
  for (const RingRun& run : plan_.runs(segment)) {
    is_absent_[number] = IsAbsent(segment, run, sum);
    if (!is_absent_[number]) {
      ++steps_[number];
    } else if (is_mean_ && segment.role == TensorRole::kParameter) {
      std::fill(values.begin() + (run.begin - segment.begin),
                values.begin() + (run.end - segment.begin), -0.0F);
    }
    ++number;
  }
  if (sum.received == nullptr) {
    ApplyRun(progress, 0, sum.own, segment.size);
  } else {
    ForEachDecodedRun(config_.proto().exchange().gradient_encoding(), *sum.received, segment.size,
                      [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                        ApplyRun(progress, first, floats, count);
                      });
  }
  RETURN_IF_ERROR(progress.status);
  if (encoding_ == FLOAT32) return absl::OkStatus();
  std::copy(masters, masters + segment.size, values.begin());
  if (!FitsEncoding(encoding_, values)) {
    return OutOfRange(config_.model(), "a parameter of the segment", encoding_, iteration,
                      segment.begin);
  }
  RoundTo(encoding_, values);
  return absl::OkStatus();
}

bool RingPart::IsAbsent(const RingSegment& segment, const RingRun& run, const Sum& sum) const {
  if (!has_marks_) return false;
  const int64_t element = run.begin - segment.begin;
  return (sum.own == nullptr || IsAbsentMark(sum.own[element])) &&
         (sum.received == nullptr || IsAbsentMark(ElementAt(*sum.received, element)));
}

bool RingPart::AllAbsent(const RingSegment& segment, const Sum& sum) const {
  const absl::Span<const RingRun> runs = plan_.runs(segment);
  return std::all_of(runs.begin(), runs.end(),
                     [&](const RingRun& run) { return IsAbsent(segment, run, sum); });
}

void RingPart::Assign(const RingSegment& segment, const Sum& sum, absl::Span<float> parameters) {
  float* const values = parameters.data() + segment.begin;
  if (sum.received != nullptr) {
    Decode(FLOAT32, *sum.received, {values, static_cast<size_t>(segment.size)});
  } else {
    std::copy_n(sum.own, segment.size, values);
  }
}

void RingPart::ApplyRun(Progress& progress, int64_t first, const UnalignedFloat* gradient,
                        int64_t count) {
  const absl::Span<const RingRun> runs = plan_.runs(progress.segment);
  const int64_t origin = progress.segment.begin + first;  // of the run, in the model
  const int64_t end = origin + count;
  auto run =
      std::upper_bound(runs.begin(), runs.end(), origin,
                       [](int64_t index, const RingRun& each) { return index < each.begin; }) -
      1;
  for (; run != runs.end() && run->begin < end; ++run) {
    const size_t number = plan_.first_run(progress.segment) + (run - runs.begin());
    int64_t begin = std::max(run->begin, origin);
    const int64_t run_end = is_absent_[number] ? begin : std::min(run->end, end);
    while (begin < run_end && progress.status.ok()) {
      const int64_t size = std::min(kCheckedElements, run_end - begin);
      progress.status = Apply(progress, number, run->tensor, begin - progress.segment.begin,
                              gradient + (begin - origin), size);
      begin += size;
    }
  }
}

absl::Status RingPart::Apply(const Progress& progress, size_t run_number, int tensor, int64_t first,
                             const UnalignedFloat* gradient, int64_t count) {
  const Model& model = config_.model();
  const RingSegment& segment = progress.segment;
  const int64_t element = segment.begin + first;
  const bool must_be_finite = sums_.MustBeFinite(segment);
  const bool has_both = progress.sum.own != nullptr && progress.sum.received != nullptr;
  const float* const own = progress.sum.own == nullptr ? nullptr : progress.sum.own + first;
  int64_t bad = !must_be_finite  ? -1
                : has_both       ? FindNonFiniteSum(own, gradient, count)
                : own != nullptr ? FindNonFinite(own, count)
                                 : -1;
  if (bad >= 0) {
    return FindNonFinite(own + bad, 1) == 0
               ? NotFinite(model, rank_, config_.proto().exchange().gradient_encoding(),
                           progress.iteration, element + bad)
               : OutOfRange(model, "the sum of the gradients", FLOAT32, progress.iteration,
                            element + bad);
  }
  OptimizerSpan run{{progress.masters + first, static_cast<size_t>(count)}};
  if (segment.role == TensorRole::kBuffer) {  // worker 0's value
    std::memcpy(run.parameters.data(), gradient, count * sizeof(float));
    return absl::OkStatus();
  }
  const Optimizer& optimizer = optimizers_.Of(tensor);
  for (int slot = 0; slot < optimizer.slots(); ++slot) {
    run.slots[slot] = slots_[slot].data() + offsets_[segment.id] + first;
  }
  if (has_both) run.sum = own;
  const bool is_parameter = model.tensors()[tensor].role == TensorRole::kParameter;
  const absl::Span<const Hyperparameters> given = progress.sum.hyperparameters;
  const bool has_numbers = !given.empty() && is_parameter;
  optimizer.Apply(
      run, gradient, progress.sum.scale * (is_parameter ? progress.sum.coefficient : 1),
      optimizer.NumbersOf(progress.iteration, has_numbers ? given[tensor] : Hyperparameters()),
      steps_[run_number]);
  // A mean that is too small for float32 is no mark.
  if (is_mean_ && IsAbsentMark(run.parameters[0])) run.parameters[0] = 0;
  if (!must_be_finite) return absl::OkStatus();
  bad = FindNonFinite(run.parameters.data(), count);
  for (int slot = 0; slot < optimizer.slots() && bad < 0; ++slot) {
    bad = FindNonFinite(run.slots[slot], count);
  }
  if (bad < 0) return absl::OkStatus();
  return OutOfRange(model, "a parameter, or the optimizer's state of it,", FLOAT32,
                    progress.iteration, element + bad);
}

}  // namespace evenshard
