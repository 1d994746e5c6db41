#ifndef EVENSHARD_COMMON_WIRE_HYPERPARAMETERS_H_
#define EVENSHARD_COMMON_WIRE_HYPERPARAMETERS_H_

#include <optional>
#include <string>

namespace evenshard {

// What goes with a gradient in place of the config's: the learning rate and its schedule, and the
// other numbers of the optimizer's rule. A field that is absent takes the config's value.
struct Hyperparameters {
  std::optional<float> learning_rate = {};
  std::optional<float> momentum = {};  // beta1 of a rule that has one
  std::optional<float> beta2 = {};
  std::optional<float> weight_decay = {};
  std::optional<float> epsilon = {};

  friend bool operator==(const Hyperparameters&, const Hyperparameters&) = default;
};

// "the learning rate 0.1, momentum 0.9"; "the config's rate" if there is none.
std::string ToText(const Hyperparameters& given);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_HYPERPARAMETERS_H_
