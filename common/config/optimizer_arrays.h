#ifndef EVENSHARD_COMMON_CONFIG_OPTIMIZER_ARRAYS_H_
#define EVENSHARD_COMMON_CONFIG_OPTIMIZER_ARRAYS_H_

#include "common/config/asynchrony.h"
#include "proto/config.pb.h"

namespace evenshard {

// The floats of state that the optimizer keeps for each parameter, as Optimizer::slots().
constexpr int OptimizerArrays(OptimizerConfig::Kind kind) {
  switch (kind) {
    case OptimizerConfig::SGD:
    case OptimizerConfig::MEAN:
      return 0;
    case OptimizerConfig::MOMENTUM:
    case OptimizerConfig::NESTEROV:
    case OptimizerConfig::ADAGRAD:
    case OptimizerConfig::RMSPROP:
    case OptimizerConfig::LION:
      return 1;
    case OptimizerConfig::ADAM:
    case OptimizerConfig::ADAMW:
    case OptimizerConfig::RMSPROP_MOMENTUM:
    case OptimizerConfig::DELAYED_NESTEROV:
      return 2;
    case OptimizerConfig::ADAM_AMSGRAD:
    case OptimizerConfig::ADAMW_AMSGRAD:
      return 3;
  }
  return 0;
}

// The arrays of state that shards keep for each parameter of the model, and that checkpoints have:
// the optimizer's, the mean square of a correction, and what the rounding of updates has lost.
inline int StateArrays(const ClusterConfig& config) {
  return OptimizerArrays(config.optimizer().kind()) *
             (HasVelocityPerWorker(config) ? config.workers() : 1) +
         (HasMeanSquare(CorrectionOf(config)) ? 1 : 0) +
         (config.exchange().has_update_encoding() ? 1 : 0);
}

// The copies of each parameter that shards keep beside those: what each worker was last sent.
inline int SentArrays(const ClusterConfig& config) {
  return CorrectionOf(config) != Asynchrony::NONE ? config.workers() : 0;
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_OPTIMIZER_ARRAYS_H_
