#ifndef EVENSHARD_COMMON_PLACEMENT_MODEL_LAYER_INITIALIZER_H_
#define EVENSHARD_COMMON_PLACEMENT_MODEL_LAYER_INITIALIZER_H_

#include "common/placement/model/model.h"

namespace evenshard {

// The rule for the initial weights and biases of a layer. fan_in is the number of inputs that are
// summed into one output, fan_out the number of outputs that one input goes into.
enum class LayerInitializer {
  kTorchDefault,  // weights and biases U(-b, b), b = 1 / sqrt(fan_in): torch.nn's Linear and Conv2d
  kHeUniform,     // weights U(-b, b), b = sqrt(6 / fan_in), biases 0: He et al. 2015, eq. 10
  kHeNormal,      // weights N(0, 2 / fan_out), biases 0: He et al. 2015, eq. 14
  kSmallNormal,   // weights N(0, 0.01^2), biases 0: torchvision's VGG
};

// The rules of a model.
struct LayerInitializers {
  LayerInitializer conv = LayerInitializer::kTorchDefault;
  LayerInitializer linear = LayerInitializer::kTorchDefault;
};

struct WeightsAndBiases {
  Initializer weights;
  Initializer biases;
};
WeightsAndBiases InitializersOf(LayerInitializer rule, double fan_in, double fan_out);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_MODEL_LAYER_INITIALIZER_H_
