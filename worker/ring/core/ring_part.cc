#include "worker/ring/core/ring_part.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/config/optimizer_arrays.h"
#include "common/wire/encoding.h"
#include "common/wire/non_finite.h"
#include "worker/ring/core/ring_sums.h"

namespace evenshard {
namespace {

// Elements that are updated and then checked, few enough to stay in the processor's cache.
constexpr int64_t kCheckedElements = 8192;

}  // namespace

RingPart::RingPart(const Options& options)
    : config_(*options.config),
      plan_(*options.plan),
      place_(options.place),
      rank_(options.rank),
      encoding_(config_.proto().exchange().parameter_encoding()),
      optimizers_(config_.proto().optimizer(), config_.proto().update().clip_value(),
                  config_.model()),
      offsets_(plan_.segments().size(), -1),
      steps_(plan_.segments().size()) {
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

absl::Status RingPart::VisitTensors(
    int64_t begin, int64_t count,
    absl::FunctionRef<absl::Status(int tensor, int64_t begin, int64_t count)> visit) const {
  const std::vector<Tensor>& tensors = config_.model().tensors();
  const int64_t end = begin + count;
  auto tensor =
      std::upper_bound(tensors.begin(), tensors.end(), begin,
                       [](int64_t index, const Tensor& each) { return index < each.offset; }) -
      1;
  for (; tensor != tensors.end() && tensor->offset < end; ++tensor) {
    const int64_t first = std::max(tensor->offset, begin);
    const int64_t last = std::min(tensor->offset + tensor->size, end);
    if (first >= last) continue;
    RETURN_IF_ERROR(visit(static_cast<int>(tensor - tensors.begin()), first, last - first));
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
    const auto read = [&](int tensor, int64_t begin, int64_t count) {
      const int64_t in_tensor = begin - tensors[tensor].offset;
      const int64_t in_part = offsets_[segment.id] + begin - segment.begin;
      const int arrays = OptimizerArrays(config_, tensors[tensor]);
      for (int i = 0; i < arrays; ++i) {
        RETURN_IF_ERROR(checkpoint.ReadOptimizerArray(i, tensor, in_tensor,
                                                      slots_[i].span().subspan(in_part, count)));
      }
      const auto steps = static_cast<int64_t>(checkpoint.ClockOf(tensor, in_tensor, count).steps);
      steps_[segment.id] = std::max(steps_[segment.id], steps);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(VisitTensors(segment.begin, segment.size, read));
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
    copy->steps = steps_[segment.id];
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
    const auto add = [&](int tensor, int64_t begin, int64_t count) {
      const int64_t in_tensor = begin - config_.model().tensors()[tensor].offset;
      const int64_t in_part = offsets_[segment.id] + begin - segment.begin;
      part.chunks.push_back({.id = static_cast<uint32_t>(part.chunks.size()),
                             .tensor = tensor,
                             .begin = in_tensor,
                             .size = count,
                             .shard = place_,
                             .model_offset = begin,
                             .shard_offset = in_part});
      part.slices.push_back({.tensor = tensor,
                             .begin = in_tensor,
                             .size = count,
                             .shard = place_,
                             .shard_offset = in_part});
      return absl::OkStatus();
    };
    VisitTensors(segment.begin, segment.size, add).IgnoreError();  // has none
  }
  return part;
}

absl::Status RingPart::Update(const RingSegment& segment, int64_t iteration, const Sum& sum,
                              absl::Span<float> parameters) {
  const absl::Span<float> values = parameters.subspan(segment.begin, segment.size);
  float* const masters =
      encoding_ == FLOAT32 ? values.data() : masters_.data() + offsets_[segment.id];
  Progress progress = {.segment = segment,
                       .iteration = iteration,
                       .sum = sum,
                       .masters = masters,
                       .step = ++steps_[segment.id]};
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

void RingPart::ApplyRun(Progress& progress, int64_t first, const UnalignedFloat* gradient,
                        int64_t count) {
  const int64_t origin = progress.segment.begin + first;  // of the run, in the model
  const auto apply = [&](int tensor, int64_t begin, int64_t size) -> absl::Status {
    for (const int64_t end = begin + size; begin < end; begin += kCheckedElements) {
      RETURN_IF_ERROR(Apply(progress, tensor, begin - progress.segment.begin,
                            gradient + (begin - origin), std::min(kCheckedElements, end - begin)));
    }
    return absl::OkStatus();
  };
  if (progress.status.ok()) progress.status = VisitTensors(origin, count, apply);
}

absl::Status RingPart::Apply(const Progress& progress, int tensor, int64_t first,
                             const UnalignedFloat* gradient, int64_t count) {
  const Model& model = config_.model();
  const int64_t element = progress.segment.begin + first;
  const bool has_both = progress.sum.own != nullptr && progress.sum.received != nullptr;
  const float* const own = progress.sum.own == nullptr ? nullptr : progress.sum.own + first;
  int64_t bad = has_both         ? FindNonFiniteSum(own, gradient, count)
                : own != nullptr ? FindNonFinite(own, count)
                                 : -1;
  if (bad >= 0) {
    return FindNonFinite(own + bad, 1) == 0
               ? NotFinite(model, rank_, config_.proto().exchange().gradient_encoding(),
                           progress.iteration, element + bad)
               : OutOfRange(model, "the sum of the gradients", FLOAT32, progress.iteration,
                            element + bad);
  }
  const Optimizer& optimizer = optimizers_.Of(tensor);
  OptimizerSpan run{{progress.masters + first, static_cast<size_t>(count)}};
  for (int slot = 0; slot < optimizer.slots(); ++slot) {
    run.slots[slot] = slots_[slot].data() + offsets_[progress.segment.id] + first;
  }
  if (has_both) run.sum = own;
  float scale = progress.sum.scale;
  if (model.tensors()[tensor].role == TensorRole::kParameter) scale *= progress.sum.coefficient;
  optimizer.Apply(run, gradient, scale, optimizer.NumbersOf(progress.iteration), progress.step);
  bad = FindNonFinite(run.parameters.data(), count);
  for (int slot = 0; slot < optimizer.slots() && bad < 0; ++slot) {
    bad = FindNonFinite(run.slots[slot], count);
  }
  if (bad < 0) return absl::OkStatus();
  return OutOfRange(model, "a parameter, or the optimizer's state of it,", FLOAT32,
                    progress.iteration, element + bad);
}

}  // namespace evenshard
