#include "common/wire/hyperparameter_check.h"

#include <catch2/catch.hpp>
#include <limits>
#include <string>

namespace evenshard {
namespace {

std::string Problem(const Hyperparameters& given, OptimizerConfig::Kind kind) {
  return std::string(CheckHyperparameters(given, kind).message());
}

TEST_CASE("hyperparameters are those of the rule, within its limits") {
  const Hyperparameters all = {.learning_rate = 0.0f,
                               .momentum = 0.9f,
                               .beta2 = 0.99f,
                               .weight_decay = 2.0f,
                               .epsilon = 0.0f};
  CHECK(Problem(all, OptimizerConfig::ADAM).empty());
  CHECK(Problem(all, OptimizerConfig::ADAMW).empty());
  CHECK(Problem({}, OptimizerConfig::SGD).empty());
  CHECK(Problem({.momentum = 1.5f}, OptimizerConfig::NESTEROV).empty());
  CHECK(Problem({.epsilon = 1.0f}, OptimizerConfig::ADAGRAD).empty());
  CHECK(
      Problem({.momentum = 1.5f, .beta2 = 0.9f, .epsilon = 1.0f}, OptimizerConfig::RMSPROP_MOMENTUM)
          .empty());
  CHECK(Problem(all, OptimizerConfig::ADAMW_AMSGRAD).empty());
  CHECK(Problem({.momentum = 0.9f, .beta2 = 0.9f}, OptimizerConfig::LION).empty());
  CHECK(Problem({.momentum = 0.9f}, OptimizerConfig::SGD) ==
        "momentum is given, which SGD does not have");
  CHECK(Problem({.beta2 = 0.9f}, OptimizerConfig::MOMENTUM) ==
        "beta2 is given, which MOMENTUM does not have");
  CHECK(Problem({.epsilon = 0.9f}, OptimizerConfig::SGD) ==
        "epsilon is given, which SGD does not have");
  // The workers have the rule, and any numbers.
  CHECK(Problem(all, OptimizerConfig::MEAN).empty());
  CHECK(Problem({.beta2 = 1.0f}, OptimizerConfig::MEAN).empty());
  CHECK(Problem({.epsilon = -1.0f}, OptimizerConfig::MEAN) ==
        "epsilon is -1, allowed: a number of at least 0");
  CHECK(Problem({.learning_rate = -1.0f}, OptimizerConfig::SGD) ==
        "the learning rate is -1, allowed: a number of at least 0");
  CHECK(Problem({.momentum = 1.0f}, OptimizerConfig::ADAM) ==
        "beta1 is 1, allowed: a number of at least 0 and below 1");
  CHECK(Problem({.momentum = 0.9f}, OptimizerConfig::RMSPROP) ==
        "momentum is given, which RMSPROP does not have");
  CHECK(Problem({.momentum = 1.0f}, OptimizerConfig::LION) ==
        "beta1 is 1, allowed: a number of at least 0 and below 1");
  CHECK(Problem(all, OptimizerConfig::LION) == "epsilon is given, which LION does not have");
  CHECK(Problem({.weight_decay = std::numeric_limits<float>::infinity()}, OptimizerConfig::SGD) ==
        "weight_decay is inf, allowed: a number of at least 0");
}

TEST_CASE("a text names what is given") {
  CHECK(ToText({}) == "the config's rate");
  CHECK(ToText({.learning_rate = 0.5f, .momentum = 0.25f, .epsilon = 1.0f}) ==
        "the learning rate 0.5, momentum 0.25, epsilon 1");
}

}  // namespace
}  // namespace evenshard
