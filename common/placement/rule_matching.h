#ifndef EVENSHARD_COMMON_PLACEMENT_RULE_MATCHING_H_
#define EVENSHARD_COMMON_PLACEMENT_RULE_MATCHING_H_

#include "absl/strings/string_view.h"
#include "common/placement/model/model.h"
#include "proto/config.pb.h"

namespace evenshard {

// Returns whether a pattern of OptimizerConfig.Rule matches a whole name: `*` stands for any
// characters, or none, and `?` for any one. Takes time in proportion to the product of the lengths
// at most.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Returns whether one of the rule's patterns matches the tensor. None matches a running statistic.
bool MatchesRule(const OptimizerConfig::Rule& rule, const Tensor& tensor);

// Returns the index of the rule that counts for the tensor, which is the first that matches it, or
// kNoRule.
int RuleOf(const OptimizerConfig& config, const Tensor& tensor);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_RULE_MATCHING_H_
