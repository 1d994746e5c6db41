#include "worker/training/gradient_check.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/config/config_contract.h"
#include "common/wire/encoding.h"
#include "spdlog/spdlog.h"
#include "worker/training/gradient_norm.h"

namespace evenshard {

bool GradientCheck::Prepare(absl::Span<float> gradients) const {
  const Update& update = config_.proto().update();
  const bool may_skip = update.non_finite() == Update::SKIP;
  const bool is_local = config_.proto().has_local();
  const double limit = is_local                ? config_.proto().local().clip_global_norm()
                       : IsSynchronous(update) ? 0
                                               : update.clip_global_norm();
  if (!may_skip && limit == 0) return true;
  double parameters = 0, statistics = 0;  // squares of norms
  for (const Tensor& tensor : config_.model().tensors()) {
    const double norm = GlobalNorm(gradients.subspan(tensor.offset, tensor.size));
    (tensor.role == TensorRole::kParameter ? parameters : statistics) += norm * norm;
  }
  // If the gradient may not be skipped, the shard refuses it with the reason.
  if (!std::isfinite(parameters + statistics)) return !may_skip;
  if (const double norm = std::sqrt(parameters); limit > 0 && norm > limit) {
    for (const Tensor& tensor : config_.model().tensors()) {
      if (tensor.role != TensorRole::kParameter) continue;
      Scale(static_cast<float>(limit / norm), gradients.subspan(tensor.offset, tensor.size));
    }
  }
  // A value that overflows in the encoding counts as not finite.
  return !may_skip || is_local ||
         FitsEncoding(config_.proto().exchange().gradient_encoding(), gradients);
}

void GradientCheck::Count(int64_t iteration, double loss, bool contributes,
                          ProgressReporter& progress) {
  ++iterations_;
  if (!std::isfinite(loss) && loss_notice_.Grew(++non_finite_losses_)) {
    progress.Flush();
    spdlog::warn("iteration {}: the loss is {}: {} of {} so far", iteration, loss,
                 non_finite_losses_, iterations_);
  }
  if (!contributes && skip_notice_.Grew(++skipped_)) {
    progress.Flush();
    spdlog::warn(
        "iteration {}: the gradient is not finite{} and is left out (update.non_finite: SKIP): {} "
        "of {} so far",
        iteration, RangeOf(config_.proto().exchange().gradient_encoding()), skipped_, iterations_);
  }
}

absl::Status GradientCheck::CheckSkipped() const {
  if (2 * skipped_ <= iterations_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the training has diverged: ", skipped_, " of ", iterations_,
                   " gradients were not finite and were left out"));
}

}  // namespace evenshard
