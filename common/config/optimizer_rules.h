#ifndef EVENSHARD_COMMON_CONFIG_OPTIMIZER_RULES_H_
#define EVENSHARD_COMMON_CONFIG_OPTIMIZER_RULES_H_

#include <string>

#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace evenshard {

// The paths of the shards' optimizer, and of the workers' in a run with local steps.
inline constexpr char kOptimizerPath[] = "optimizer";
inline constexpr char kLocalOptimizerPath[] = "local.optimizer";

// The field of a rule, "optimizer.rule[1]", and of one of its patterns. `optimizer` is the path.
std::string RulePath(absl::string_view optimizer, int rule);
std::string PatternPath(absl::string_view optimizer, int rule, int pattern);

// Stands for a tensor that no rule of the optimizer matches.
inline constexpr int kNoRule = -1;

// Returns the numbers that a rule sets, and nothing else.
OptimizerConfig NumbersOf(const OptimizerConfig::Rule& rule);

// Returns the optimizer of the tensors for which `rule` counts, an index or kNoRule: the config
// with the rule's numbers in place of its own, and without rules.
OptimizerConfig OptimizerOfRule(OptimizerConfig config, int rule);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_OPTIMIZER_RULES_H_
