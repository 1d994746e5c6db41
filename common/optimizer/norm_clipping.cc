#include "common/optimizer/norm_clipping.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"

namespace evenshard {

SquareRule NormRuleOf(double clip_global_norm, const Model& model) {
  int64_t elements = 0;
  for (const Tensor& tensor : model.tensors()) {
    if (tensor.role == TensorRole::kParameter) elements += tensor.size;
  }
  return SquareRule(clip_global_norm, std::max<int64_t>(elements, 1));
}

float ClipCoefficient(double clip_global_norm, double squared_norm) {
  constexpr double kEpsilon = 1e-6;
  return static_cast<float>(std::min(1.0, clip_global_norm / (std::sqrt(squared_norm) + kEpsilon)));
}

absl::Status CheckNorm(double clip_global_norm, uint64_t iteration, double squared_norm) {
  if (std::isfinite(squared_norm)) return absl::OkStatus();
  return WithKind(
      ErrorDetail::RUN_FAILED,
      absl::OutOfRangeError(absl::StrCat("the norm of the mean gradient of iteration ", iteration,
                                         " is too large to be clipped to update.clip_global_norm (",
                                         clip_global_norm, ")")));
}

}  // namespace evenshard
