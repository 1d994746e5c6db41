#ifndef EVENSHARD_SERVER_AGREEMENT_NORM_DECIDER_H_
#define EVENSHARD_SERVER_AGREEMENT_NORM_DECIDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/optimizer/square_sum.h"
#include "common/placement/planned_config.h"
#include "proto/agreement.pb.h"
#include "server/agreement/agreement_decider.h"

namespace evenshard {

// Decides on the norm of each iteration's mean gradient: it adds up the parts of all slots.
// Thread-safe. Take fails with OUT_OF_RANGE, of the kind RUN_FAILED, if the norm is too large to be
// told.
class NormDecider final : public AgreementDecider {
 public:
  // REQUIRES: the config, which must outlive this, clips the mean.
  explicit NormDecider(const PlannedConfig* config);

 private:
  absl::Status CheckContent(const AgreementReport& report) const override
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::optional<uint64_t> TakeContent(const AgreementReport& report) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(uint64_t iteration) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {}
  std::optional<uint64_t> latest_iteration() const override ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<AgreementAnswer> Known() const override ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  const SquareRule rule_;
  // By slot; where the slot asks, of the iteration that it asks for.
  std::vector<SquareSum> parts_ ABSL_GUARDED_BY(mutex_);
  std::optional<SquaredNorm> latest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_NORM_DECIDER_H_
