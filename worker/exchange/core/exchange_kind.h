#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_KIND_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_KIND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/wire/hyperparameters.h"

namespace evenshard {

// What a worker pushes in an exchange: gradients, unless it says otherwise.
struct ExchangeKind {
  // It takes part without contributing, and does not count in the mean.
  bool skip = false;
  // With `skip`, under QUORUM: GradientChunk.onlooks.
  bool onlooks = false;
  // How much it counts in the mean. The gradients have been multiplied by it.
  float weight = 1;
  // What goes with gradients, by tensor; empty for the config's.
  std::vector<Hyperparameters> hyperparameters = {};
  // The exchange is no iteration of training: worker 0's values replace this array of the state,
  // as GradientChunk.assigned says. Tensors that are pushed without a value stay as they are.
  std::optional<uint32_t> assigned = {};
  // With an array of the optimizer's state: the updates behind it, by tensor; empty for none.
  std::vector<uint64_t> steps = {};
};

// What a worker brings to the update of a tensor.
enum class Contribution : uint8_t {
  kZeros,  // its batch did not use the tensor: GradientChunk.absent
  kGradient,
  kNothing,  // it does not count in the mean: GradientChunk.skip
};

// How many exchanges were assignments: all in all, and since the latest iteration of training.
struct AssignmentCounts {
  uint64_t all = 0;
  uint64_t recent = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_KIND_H_
