#ifndef EVENSHARD_COMMON_WIRE_HYPERPARAMETER_CHECK_H_
#define EVENSHARD_COMMON_WIRE_HYPERPARAMETER_CHECK_H_

#include "absl/status/status.h"
#include "common/wire/hyperparameters.h"
#include "proto/config.pb.h"

namespace evenshard {

// Errors: INVALID_ARGUMENT, "the learning rate is -1, allowed: ...", for a number that the rule has
// not or cannot take. With MEAN, where the workers have the rule, it may have any.
absl::Status CheckHyperparameters(const Hyperparameters& given, OptimizerConfig::Kind kind);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_HYPERPARAMETER_CHECK_H_
