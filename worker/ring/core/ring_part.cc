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

RingPart::RingPart(const PlannedConfig* config, const RingPlan* plan, int rank)
    : config_(*config),
      plan_(*plan),
      rank_(rank),
      encoding_(config->proto().exchange().parameter_encoding()),
      optimizers_(config->proto().optimizer(), config->proto().update().clip_value(),
                  config->model()),
      offsets_(plan->segments().size(), -1),
      steps_(plan->segments().size()) {
  int64_t offset = 0;
  for (const RingSegment& segment : plan->segments()) {
    if (segment.part != rank) continue;
    offsets_[segment.id] = offset;
    offset += segment.size;
  }
}

absl::StatusOr<std::unique_ptr<RingPart>> RingPart::Create(const PlannedConfig* config,
                                                           const RingPlan* plan, int rank) {
  std::unique_ptr<RingPart> part(new RingPart(config, plan, rank));
  const int64_t floats = std::max(plan->part_size(rank), kAlignment);
  part->slots_.resize(StateArrays(config->proto()));
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
    if (segment.part == rank_) {
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
  const std::vector<Tensor>& tensors = config_.model().tensors();
  const int64_t origin = progress.segment.begin + first;  // of the run, in the model
  const int64_t end = origin + count;
  auto tensor =
      std::upper_bound(tensors.begin(), tensors.end(), origin,
                       [](int64_t index, const Tensor& each) { return index < each.offset; }) -
      1;
  for (; tensor != tensors.end() && tensor->offset < end; ++tensor) {
    int64_t begin = std::max(tensor->offset, origin);
    const int64_t tensor_end = std::min(tensor->offset + tensor->size, end);
    while (begin < tensor_end && progress.status.ok()) {
      const int64_t size = std::min(kCheckedElements, tensor_end - begin);
      progress.status = Apply(progress, static_cast<int>(tensor - tensors.begin()),
                              begin - progress.segment.begin, gradient + (begin - origin), size);
      begin += size;
    }
  }
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
  optimizer.Apply(run, gradient, progress.sum.scale, optimizer.NumbersOf(progress.iteration),
                  progress.step);
  bad = FindNonFinite(run.parameters.data(), count);
  for (int slot = 0; slot < optimizer.slots() && bad < 0; ++slot) {
    bad = FindNonFinite(run.slots[slot], count);
  }
  if (bad < 0) return absl::OkStatus();
  return OutOfRange(model, "a parameter, or the optimizer's state of it,", FLOAT32,
                    progress.iteration, element + bad);
}

}  // namespace evenshard
