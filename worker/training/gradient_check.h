#ifndef EVENSHARD_WORKER_TRAINING_GRADIENT_CHECK_H_
#define EVENSHARD_WORKER_TRAINING_GRADIENT_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/doubling_notice.h"
#include "common/placement/planned_config.h"
#include "worker/reporting/progress.h"

namespace evenshard {

// Looks at each gradient of a worker as a whole before it is pushed, as the config's `update` asks
// for, and keeps count of gradients and losses that are not finite. Not thread-safe.
class GradientCheck {
 public:
  // `config` must outlive the check.
  explicit GradientCheck(const PlannedConfig& config) : config_(config) {}

  // Under ASYNC, clips the gradient if the config asks for it: each push is an update by itself.
  // Under SYNC the shards clip the mean. With local steps, clips it as `local` asks for. Returns
  // whether to push it, or to take a step by it: false if it is not finite and the config says
  // SKIP.
  bool Prepare(absl::Span<float> gradients) const;

  // Counts an iteration. If its loss is not finite, or its gradient is left out, warns of the first
  // such one and whenever their number has doubled.
  void Count(int64_t iteration, double loss, bool contributes, ProgressReporter& progress);

  // The number of gradients that were left out.
  int64_t skipped() const { return skipped_; }
  // Errors: FAILED_PRECONDITION if more than half of the gradients were left out.
  absl::Status CheckSkipped() const;

 private:
  const PlannedConfig& config_;
  int64_t iterations_ = 0;
  int64_t skipped_ = 0;
  int64_t non_finite_losses_ = 0;
  DoublingNotice<int64_t> loss_notice_{1};  // of non_finite_losses_
  DoublingNotice<int64_t> skip_notice_{1};  // of skipped_
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_GRADIENT_CHECK_H_
