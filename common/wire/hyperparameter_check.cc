#include "common/wire/hyperparameter_check.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

struct Number {
  const char* name;
  std::optional<float> value;
  bool of_rule;
  bool below_one;
};

}  // namespace

absl::Status CheckHyperparameters(const Hyperparameters& given, OptimizerConfig::Kind kind) {
  const bool is_adam = kind == OptimizerConfig::ADAM || kind == OptimizerConfig::ADAMW;
  const bool has_momentum =
      is_adam || kind == OptimizerConfig::MOMENTUM || kind == OptimizerConfig::NESTEROV;
  const Number numbers[] = {
      {"the learning rate", given.learning_rate, true, false},
      {is_adam ? "beta1" : "momentum", given.momentum, has_momentum, is_adam},
      {"beta2", given.beta2, is_adam, true},
      {"weight_decay", given.weight_decay, true, false},
      {"epsilon", given.epsilon, is_adam || kind == OptimizerConfig::ADAGRAD, false}};
  for (const auto& [name, value, of_rule, below_one] : numbers) {
    if (!value.has_value()) continue;
    if (!of_rule) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " is given, which ", OptimizerConfig::Kind_Name(kind), " does not have"));
    }
    if (std::isfinite(*value) && *value >= 0 && (!below_one || *value < 1)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", *value,
                                                   ", allowed: a number of at least 0",
                                                   below_one ? " and below 1" : ""));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
