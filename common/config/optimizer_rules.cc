#include "common/config/optimizer_rules.h"

#include "absl/strings/str_cat.h"

namespace evenshard {

std::string RulePath(absl::string_view optimizer, int rule) {
  return absl::StrCat(optimizer, ".rule[", rule, "]");
}

std::string PatternPath(absl::string_view optimizer, int rule, int pattern) {
  return absl::StrCat(RulePath(optimizer, rule), ".tensors[", pattern, "]");
}

OptimizerConfig NumbersOf(const OptimizerConfig::Rule& rule) {
  OptimizerConfig numbers;
  if (rule.has_learning_rate()) numbers.set_learning_rate(rule.learning_rate());
  if (rule.has_weight_decay()) numbers.set_weight_decay(rule.weight_decay());
  if (rule.has_momentum()) numbers.set_momentum(rule.momentum());
  if (rule.has_beta1()) numbers.set_beta1(rule.beta1());
  if (rule.has_beta2()) numbers.set_beta2(rule.beta2());
  if (rule.has_epsilon()) numbers.set_epsilon(rule.epsilon());
  return numbers;
}

OptimizerConfig OptimizerOfRule(OptimizerConfig config, int rule) {
  if (rule != kNoRule) config.MergeFrom(NumbersOf(config.rule(rule)));
  config.clear_rule();
  return config;
}

}  // namespace evenshard
