#include "worker/ring/core/ring_norm.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/optimizer/norm_clipping.h"
#include "common/wire/non_finite.h"
#include "worker/ring/core/ring_sums.h"

namespace evenshard {

RingNorm::RingNorm(const PlannedConfig* config, const RingPlan* plan, int place)
    : config_(*config),
      plan_(*plan),
      place_(place),
      is_there_(plan->workers()),
      parts_(plan->workers()) {
  if (!config->clips_mean()) return;
  rule_ = NormRuleOf(config->proto().update().clip_global_norm(), config->model());
  own_segments_ = static_cast<uint32_t>(
      std::count_if(plan->segments().begin(), plan->segments().end(),
                    [place](const RingSegment& segment) { return segment.part == place; }));
}

absl::StatusOr<SquareSum> RingNorm::SquaresOf(const RingSegment& segment, uint64_t iteration,
                                              float scale,
                                              absl::Span<const float> gradients) const {
  SquareSum squares;
  const int64_t segment_end = segment.begin + segment.size;
  for (const Tensor& tensor : config_.model().tensors()) {
    if (tensor.role != TensorRole::kParameter) continue;
    const int64_t begin = std::max(tensor.offset, segment.begin);
    const int64_t end = std::min(tensor.offset + tensor.size, segment_end);
    if (begin >= end || rule_->Add(gradients.data() + begin, end - begin, scale, &squares)) {
      continue;
    }
    const int64_t bad = std::max<int64_t>(FindNonFinite(gradients.data() + begin, end - begin), 0);
    return OutOfRange(config_.model(), "the mean of the gradients", FLOAT32,
                      static_cast<int64_t>(iteration), begin + bad);
  }
  return squares;
}

void RingNorm::Begin() {
  left_ = own_segments_;
  missing_ = 0;
  for (int place = 0; place < static_cast<int>(parts_.size()); ++place) {
    const bool takes_part = plan_.part_size(place) > 0;
    is_there_[place] = !takes_part;
    missing_ += takes_part ? 1 : 0;
  }
  parts_[place_] = {};
}

bool RingNorm::AddOwn(const SquareSum& squares) {
  parts_[place_].Add(squares);
  if (--left_ > 0) return false;
  is_there_[place_] = true;
  --missing_;
  return true;
}

absl::StatusOr<int> RingNorm::AddReceived(uint32_t chunk, const Segments& data) {
  const auto place = static_cast<size_t>(chunk) - plan_.segments().size();
  SquareSum::Limbs limbs;
  const bool is_part = chunk >= plan_.segments().size() && place < parts_.size() &&
                       static_cast<int>(place) != place_ && SegmentsSize(data) == sizeof(limbs);
  if (!is_part || is_there_[place]) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk ", chunk, " of ", SegmentsSize(data),
                     " bytes, no missing part of the gradient's norm"));
  }
  auto* to = reinterpret_cast<char*>(limbs.data());
  for (const auto& piece : data) to = std::copy(piece.begin(), piece.end(), to);
  parts_[place] = SquareSum(limbs);
  is_there_[place] = true;
  --missing_;
  return static_cast<int>(place);
}

absl::StatusOr<float> RingNorm::Coefficient(uint64_t iteration) const {
  SquareSum sum;
  for (int place = 0; place < static_cast<int>(parts_.size()); ++place) {
    if (plan_.part_size(place) > 0) sum.Add(parts_[place]);
  }
  const double limit = config_.proto().update().clip_global_norm();
  const double squared = rule_->Value(sum);
  RETURN_IF_ERROR(CheckNorm(limit, iteration, squared));
  return ClipCoefficient(limit, squared);
}

}  // namespace evenshard
