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
  return rate == Asynchrony::BY_STALENESS ||
         (rate == Asynchrony::RATE_UNSPECIFIED && HasMomentum(config.optimizer().kind()));
}

bool HasVelocityPerWorker(const ClusterConfig& config) {
  const OptimizerConfig::Kind kind = config.optimizer().kind();
  return config.workers() > 1 && IsAsynchronous(config.update()) &&
         config.update().asynchrony().velocity() != Asynchrony::SHARED &&
         (kind == OptimizerConfig::MOMENTUM || kind == OptimizerConfig::NESTEROV);
}

std::string AsynchronyWarning(const ClusterConfig& config) {
  const OptimizerConfig::Kind kind = config.optimizer().kind();
  if (!IsAsynchronous(config.update()) || DividesByStaleness(config) || config.workers() == 1 ||
      !HasMomentum(kind)) {
    return "";
  }
  return absl::StrCat("update.asynchrony.rate is CONSTANT with ", OptimizerConfig::Kind_Name(kind),
                      " and ", config.workers(),
                      " workers, with which training is known to diverge; BY_STALENESS is safe "
                      "(docs/modes.md)");
}

}  // namespace evenshard
