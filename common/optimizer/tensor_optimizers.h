#ifndef EVENSHARD_COMMON_OPTIMIZER_TENSOR_OPTIMIZERS_H_
#define EVENSHARD_COMMON_OPTIMIZER_TENSOR_OPTIMIZERS_H_

#include <map>
#include <memory>
#include <vector>

#include "common/optimizer/optimizer.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// The optimizer of each tensor of a model: the config's, with the numbers of the rule that counts
// for the tensor. What is not trained has its pushed values subtracted as they are. Immutable and
// thread-safe.
class TensorOptimizers {
 public:
  // See Optimizer::Create for `clip_value`. REQUIRES: the config has been checked.
  TensorOptimizers(const OptimizerConfig& config, float clip_value, const Model& model);

  const Optimizer& Of(int tensor) const { return *of_tensor_[tensor]; }

 private:
  std::map<int, std::unique_ptr<const Optimizer>> by_rule_;  // see RuleOf
  std::unique_ptr<const Optimizer> subtraction_;
  std::vector<const Optimizer*> of_tensor_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_OPTIMIZER_TENSOR_OPTIMIZERS_H_
