#include "common/config/asynchrony.h"

#include "absl/strings/str_cat.h"
#include "common/config/config_contract.h"

namespace evenshard {
namespace {

// Whether a step goes on in the direction of earlier gradients, to which asynchrony adds.
// DELAYED_NESTEROV allows for that by itself.
bool HasMomentum(OptimizerConfig::Kind kind) {
  return kind != OptimizerConfig::SGD && kind != OptimizerConfig::ADAGRAD &&
         kind != OptimizerConfig::RMSPROP && kind != OptimizerConfig::DELAYED_NESTEROV;
}

}  // namespace

bool DividesByStaleness(const ClusterConfig& config) {
  if (!IsAsynchronous(config.update())) return false;
  const Asynchrony::Rate rate = config.update().asynchrony().rate();
  // It makes stale gradients smaller by itself. The compensations do not.
  const bool is_gap_aware = CorrectionOf(config) == Asynchrony::GAP_AWARE;
  return rate == Asynchrony::BY_STALENESS ||
         (rate == Asynchrony::RATE_UNSPECIFIED && !is_gap_aware &&
          HasMomentum(config.optimizer().kind()));
}

bool HasVelocityPerWorker(const ClusterConfig& config) {
  const OptimizerConfig::Kind kind = config.optimizer().kind();
  return config.workers() > 1 && IsAsynchronous(config.update()) &&
         config.update().asynchrony().velocity() != Asynchrony::SHARED &&
         (kind == OptimizerConfig::MOMENTUM || kind == OptimizerConfig::NESTEROV);
}

Asynchrony::Correction CorrectionOf(const ClusterConfig& config) {
  if (!IsAsynchronous(config.update()) || config.workers() == 1) return Asynchrony::NONE;
  return config.update().asynchrony().correction();
}

float LambdaOf(const Asynchrony& asynchrony) {
  // MXNet's DCASGD has the former. Zheng et al. 2017 have the latter.
  constexpr float kConstant = 0.04f, kAdaptive = 2;
  switch (asynchrony.correction()) {
    case Asynchrony::DELAY_COMPENSATION:
      return asynchrony.has_lambda() ? asynchrony.lambda() : kConstant;
    case Asynchrony::ADAPTIVE_DELAY_COMPENSATION:
      return asynchrony.has_lambda() ? asynchrony.lambda() : kAdaptive;
    case Asynchrony::NONE:
    case Asynchrony::GAP_AWARE:
      break;
  }
  return 0;
}

std::string AsynchronyWarning(const ClusterConfig& config) {
  const OptimizerConfig::Kind kind = config.optimizer().kind();
  if (!IsAsynchronous(config.update()) || DividesByStaleness(config) || config.workers() == 1 ||
      CorrectionOf(config) == Asynchrony::GAP_AWARE || !HasMomentum(kind)) {
    return "";
  }
  return absl::StrCat("update.asynchrony.rate is CONSTANT with ", OptimizerConfig::Kind_Name(kind),
                      " and ", config.workers(),
                      " workers, with which training is known to diverge; BY_STALENESS is safe "
                      "(docs/modes.md)");
}

}  // namespace evenshard
