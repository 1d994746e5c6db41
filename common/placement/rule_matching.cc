#include "common/placement/rule_matching.h"

#include <algorithm>
#include <string>

#include "common/config/optimizer_rules.h"

namespace evenshard {

// Where the name does not go on as the pattern does, the latest star takes one character more. No
// earlier star needs to, because what is between the two was found as early as possible.
bool MatchesPattern(absl::string_view pattern, absl::string_view name) {
  size_t p = 0, n = 0;                          // how much of each has been matched
  size_t after_star = absl::string_view::npos;  // in the pattern, behind its latest star
  size_t star_end = 0;                          // in the name, the end of what that star took
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      after_star = ++p;
      star_end = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (after_star != absl::string_view::npos) {
      p = after_star;
      n = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == absl::string_view::npos;
}

bool MatchesRule(const OptimizerConfig::Rule& rule, const Tensor& tensor) {
  if (tensor.role != TensorRole::kParameter) return false;
  return std::any_of(
      rule.tensors().begin(), rule.tensors().end(),
      [&tensor](const std::string& pattern) { return MatchesPattern(pattern, tensor.name); });
}

int RuleOf(const OptimizerConfig& config, const Tensor& tensor) {
  for (int i = 0; i < config.rule_size(); ++i) {
    if (MatchesRule(config.rule(i), tensor)) return i;
  }
  return kNoRule;
}

}  // namespace evenshard
