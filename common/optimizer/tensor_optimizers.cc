#include "common/optimizer/tensor_optimizers.h"

#include "common/config/optimizer_rules.h"
#include "common/placement/rule_matching.h"

namespace evenshard {
namespace {

// Returns the optimizer that subtracts the pushed value unchanged.
std::unique_ptr<const Optimizer> MakeSubtraction() {
  OptimizerConfig config;
  config.set_kind(OptimizerConfig::SGD);
  config.set_learning_rate(1);
  return Optimizer::Create(config, /*clip_value=*/0);
}

}  // namespace

TensorOptimizers::TensorOptimizers(const OptimizerConfig& config, float clip_value,
                                   const Model& model)
    : subtraction_(MakeSubtraction()) {
  for (int rule = kNoRule; rule < config.rule_size(); ++rule) {
    by_rule_[rule] = Optimizer::Create(OptimizerOfRule(config, rule), clip_value);
  }
  for (const Tensor& tensor : model.tensors()) {
    of_tensor_.push_back(tensor.role == TensorRole::kParameter
                             ? by_rule_[RuleOf(config, tensor)].get()
                             : subtraction_.get());
  }
}

}  // namespace evenshard
