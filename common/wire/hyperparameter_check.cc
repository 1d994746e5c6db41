#include "common/wire/hyperparameter_check.h"

#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/config/optimizer_numbers.h"

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
  const OptimizerNumbers of_kind = NumbersOfKind(kind);
  // The workers' own optimizers may have any. They are given to be the same in all workers.
  const bool is_any = kind == OptimizerConfig::MEAN;
  const Number numbers[] = {{"the learning rate", given.learning_rate, true, false},
                            {of_kind.beta1 ? "beta1" : "momentum", given.momentum,
                             of_kind.beta1 || of_kind.momentum, of_kind.beta1},
                            {"beta2", given.beta2, of_kind.beta2, true},
                            {"weight_decay", given.weight_decay, true, false},
                            {"epsilon", given.epsilon, of_kind.epsilon, false}};
  for (const auto& [name, value, of_rule, below_one] : numbers) {
    if (!value.has_value()) continue;
    if (!of_rule && !is_any) {
      return absl::InvalidArgumentError(absl::StrCat(
          name, " is given, which ", OptimizerConfig::Kind_Name(kind), " does not have"));
    }
    const bool is_bounded = below_one && !is_any;
    if (std::isfinite(*value) && *value >= 0 && (!is_bounded || *value < 1)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, " is ", *value,
                                                   ", allowed: a number of at least 0",
                                                   is_bounded ? " and below 1" : ""));
  }
  return absl::OkStatus();
}

}  // namespace evenshard
