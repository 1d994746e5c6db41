#ifndef EVENSHARD_COMMON_CONFIG_OPTIMIZER_RULES_H_
#define EVENSHARD_COMMON_CONFIG_OPTIMIZER_RULES_H_

#include "absl/strings/string_view.h"
#include "common/placement/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// Stands for a tensor that no rule of the optimizer matches.
inline constexpr int kNoRule = -1;

// Returns whether a pattern of OptimizerConfig.Rule matches a whole name: `*` stands for any
// characters, or none, and `?` for any one. Takes time in proportion to the product of the lengths
// at most.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Returns whether one of the rule's patterns matches the tensor. None matches a running statistic.
bool MatchesRule(const OptimizerConfig::Rule& rule, const Tensor& tensor);

// Returns the index of the rule that counts for the tensor, which is the first that matches it, or
// kNoRule.
int RuleOf(const OptimizerConfig& config, const Tensor& tensor);

// Returns the numbers that a rule sets, and nothing else.
OptimizerConfig NumbersOf(const OptimizerConfig::Rule& rule);

// Returns the optimizer of the tensors for which `rule` counts, an index or kNoRule: the config
// with the rule's numbers in place of its own, and without rules.
OptimizerConfig OptimizerOfRule(OptimizerConfig config, int rule);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_OPTIMIZER_RULES_H_
