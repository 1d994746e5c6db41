#ifndef EVENSHARD_COMMON_CONFIG_OPTIMIZER_ARRAYS_H_
#define EVENSHARD_COMMON_CONFIG_OPTIMIZER_ARRAYS_H_

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
      return 1;
    case OptimizerConfig::ADAM:
    case OptimizerConfig::ADAMW:
      return 2;
  }
  return 0;
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_OPTIMIZER_ARRAYS_H_
