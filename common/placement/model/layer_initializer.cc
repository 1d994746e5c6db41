#include "common/placement/model/layer_initializer.h"

#include <cmath>

namespace evenshard {

WeightsAndBiases InitializersOf(LayerInitializer rule, double fan_in, double fan_out) {
  switch (rule) {
    case LayerInitializer::kTorchDefault:
      break;
    case LayerInitializer::kHeUniform:
      return {.weights = {Initializer::kUniform, std::sqrt(6 / fan_in)}, .biases = {}};
    case LayerInitializer::kHeNormal:
      return {.weights = {Initializer::kNormal, std::sqrt(2 / fan_out)}, .biases = {}};
    case LayerInitializer::kSmallNormal:
      return {.weights = {Initializer::kNormal, 0.01}, .biases = {}};
  }
  const Initializer both = {Initializer::kUniform, 1 / std::sqrt(fan_in)};
  return {.weights = both, .biases = both};
}

}  // namespace evenshard
