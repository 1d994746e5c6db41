#ifndef EVENSHARD_COMMON_CONFIG_OPTIMIZER_NUMBERS_H_
#define EVENSHARD_COMMON_CONFIG_OPTIMIZER_NUMBERS_H_

#include "proto/config.pb.h"

namespace evenshard {

// Which numbers a rule has beside the learning rate and the weight decay.
struct OptimizerNumbers {
  bool momentum = false;
  bool beta1 = false;
  bool beta2 = false;
  bool epsilon = false;
  bool delay = false;
};

constexpr OptimizerNumbers NumbersOfKind(OptimizerConfig::Kind kind) {
  switch (kind) {
    case OptimizerConfig::SGD:
    case OptimizerConfig::MEAN:
      return {};
    case OptimizerConfig::MOMENTUM:
    case OptimizerConfig::NESTEROV:
      return {.momentum = true};
    case OptimizerConfig::ADAGRAD:
      return {.epsilon = true};
    case OptimizerConfig::RMSPROP:
      return {.beta2 = true, .epsilon = true};
    case OptimizerConfig::RMSPROP_MOMENTUM:
      return {.momentum = true, .beta2 = true, .epsilon = true};
    case OptimizerConfig::ADAM:
    case OptimizerConfig::ADAMW:
    case OptimizerConfig::ADAM_AMSGRAD:
    case OptimizerConfig::ADAMW_AMSGRAD:
      return {.beta1 = true, .beta2 = true, .epsilon = true};
    case OptimizerConfig::LION:
      return {.beta1 = true, .beta2 = true};
    case OptimizerConfig::DELAYED_NESTEROV:
      return {.momentum = true, .delay = true};
  }
  return {};
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_OPTIMIZER_NUMBERS_H_
