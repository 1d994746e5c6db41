#include "common/placement/rule_matching.h"

#include <catch2/catch.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/config/optimizer_rules.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

// The definition, without any care for time.
bool MatchesByDefinition(absl::string_view pattern, absl::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] == '*') {
    return MatchesByDefinition(pattern.substr(1), name) ||
           (!name.empty() && MatchesByDefinition(pattern, name.substr(1)));
  }
  return !name.empty() && (pattern[0] == '?' || pattern[0] == name[0]) &&
         MatchesByDefinition(pattern.substr(1), name.substr(1));
}

TEST_CASE("a pattern matches whole names") {
  struct Case {
    const char* pattern;
    const char* name;
    bool matches;
  };
  for (const Case& c : {
           Case{"fc/bias", "fc/bias", true},
           {"fc/bias", "fc/bias2", false},
           {"c/bias", "fc/bias", false},
           {"*/bias", "fc/bias", true},
           {"*/bias", "/bias", true},
           {"*/bias", "layer1.0.bn1/bias", true},
           {"*/bias", "fc/bias/x", false},
           {"*bias", "bias", true},
           {"*", "", true},
           {"*", "anything/at.all", true},
           {"", "", true},
           {"", "a", false},
           {"?", "", false},
           {"?", "a", true},
           {"?", "ab", false},
           {"fc?/*", "fc1/weight", true},
           {"fc?/*", "fc10/weight", false},
           {"fc?/*", "fc/weight", false},
           {"*bn*", "layer1.0.bn2/weight", true},
           {"*bn*", "bn", true},
           {"*.0.*.weight", "encoder.10.0.norm.weight", true},
           {"a*b*c", "abbc", true},
           {"a*b*c", "acb", false},
           {"**", "x", true},
           {"*?*", "", false},
           {"*ab", "aab", true},
           {"[a-z]*", "fc", false},  // no other character is special
           {".*", "fc", false},
       }) {
    CAPTURE(c.pattern, c.name);
    CHECK(MatchesPattern(c.pattern, c.name) == c.matches);
    CHECK(MatchesByDefinition(c.pattern, c.name) == c.matches);
  }
}

TEST_CASE("random patterns match what they match by definition") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto text = [&random](const std::string& letters) {
    std::string drawn(random() % 8, ' ');
    for (char& c : drawn) c = letters[random() % letters.size()];
    return drawn;
  };
  int matches = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string pattern = text("ab*?"), name = text("ab");
    CAPTURE(pattern, name);
    const bool expected = MatchesByDefinition(pattern, name);
    matches += expected;
    if (MatchesPattern(pattern, name) != expected) FAIL_CHECK("not as by the definition");
  }
  CHECK(matches > 500);
}

TEST_CASE("a pattern of many stars takes no exponential time") {
  std::string pattern;
  for (int i = 0; i < 500; ++i) pattern += "*a";
  const std::string name(2000, 'a');
  CHECK(MatchesPattern(pattern, name));
  CHECK_FALSE(MatchesPattern(pattern + "b", name));
}

constexpr char kNormConfig[] = R"(
  model {
    input { channels: 3 height: 4 width: 4 }
    layer { name: "conv" conv { out_channels: 4 kernel: 3 } }
    layer { name: "norm" batch_norm {} }
    layer { name: "fc" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "localhost:50051" }
  update { policy: SYNC }
  training { iterations: 3 batch_size: 4 }
  compute { backend: EMULATED }
)";

TEST_CASE("the first rule with a pattern that matches a parameter counts for it") {
  const PlannedConfig config = Valid(absl::StrCat(kNormConfig, R"(
      optimizer {
        learning_rate: 0.5
        rule { tensors: "norm/*" tensors: "conv/bias" weight_decay: 0 }
        rule { tensors: "*" weight_decay: 0.125 learning_rate: 0.25 }
      }
  )"));
  std::vector<std::pair<std::string, int>> rules;
  for (const Tensor& tensor : config.model().tensors()) {
    rules.emplace_back(tensor.name, RuleOf(config.proto().optimizer(), tensor));
  }
  CHECK(rules == std::vector<std::pair<std::string, int>>{{"conv/weight", 1},
                                                          {"conv/bias", 0},
                                                          {"norm/weight", 0},
                                                          {"norm/bias", 0},
                                                          {"norm/running_mean", kNoRule},
                                                          {"norm/running_var", kNoRule},
                                                          {"fc/weight", 1},
                                                          {"fc/bias", 1}});
}

TEST_CASE("what a rule does not set is the optimizer's") {
  OptimizerConfig config;
  config.set_kind(OptimizerConfig::ADAMW);
  config.set_learning_rate(0.5f);
  config.set_weight_decay(0.25f);
  config.set_beta1(0.75f);
  config.mutable_schedule()->set_warmup_iterations(7);
  OptimizerConfig::Rule* rule = config.add_rule();
  rule->add_tensors("*/bias");
  rule->set_weight_decay(0);
  rule->set_beta2(0.5f);

  OptimizerConfig expected = config;
  expected.clear_rule();
  CHECK(OptimizerOfRule(config, kNoRule).SerializeAsString() == expected.SerializeAsString());
  expected.set_weight_decay(0);
  expected.set_beta2(0.5f);
  CHECK(OptimizerOfRule(config, 0).SerializeAsString() == expected.SerializeAsString());
}

TEST_CASE("every number of a rule takes the place of the optimizer's") {
  OptimizerConfig config;
  OptimizerConfig::Rule* rule = config.add_rule();
  rule->set_learning_rate(1);
  rule->set_weight_decay(2);
  rule->set_momentum(3);
  rule->set_beta1(4);
  rule->set_beta2(5);
  rule->set_epsilon(6);
  const OptimizerConfig numbers = OptimizerOfRule(config, 0);
  CHECK(numbers.learning_rate() == 1);
  CHECK(numbers.weight_decay() == 2);
  CHECK(numbers.momentum() == 3);
  CHECK(numbers.beta1() == 4);
  CHECK(numbers.beta2() == 5);
  CHECK(numbers.epsilon() == 6);
}

// Returns the error of kNormConfig with an optimizer whose fields begin on line 14.
std::string ErrorWith(const std::string& optimizer, const Overrides& overrides = {}) {
  return ErrorOf(absl::StrCat(kNormConfig, "optimizer {\n", optimizer, "\n}"), overrides);
}

TEST_CASE("the numbers of a rule are checked as the optimizer's are") {
  CHECK(ErrorWith("rule { tensors: '*' learning_rate: 0 }") ==
        "f:14: optimizer.rule[0].learning_rate: is 0, allowed: a number above 0");
  CHECK(ErrorWith("rule { tensors: '*' weight_decay: -1 }") ==
        "f:14: optimizer.rule[0].weight_decay: is -1, allowed: a number of at least 0");
  CHECK(ErrorWith("kind: NESTEROV rule { tensors: '*' momentum: 1 }") ==
        "f:14: optimizer.rule[0].momentum: is 1, allowed: at least 0 and below 1");
  CHECK(ErrorWith("kind: ADAMW rule { tensors: '*' beta1: nan }") ==
        "f:14: optimizer.rule[0].beta1: is nan, allowed: at least 0 and below 1");
  CHECK(ErrorWith("kind: ADAMW rule { tensors: '*' beta2: 2 }") ==
        "f:14: optimizer.rule[0].beta2: is 2, allowed: at least 0 and below 1");
  CHECK(ErrorWith("kind: ADAGRAD\nrule { tensors: 'fc/*' epsilon: 1 }\n"
                  "rule { tensors: '*' epsilon: 0 }") ==
        "f:16: optimizer.rule[1].epsilon: is 0, allowed: a number above 0");
  CHECK(ErrorWith("rule { tensors: '*' momentum: 0.5 }") ==
        "f:14: optimizer.rule[0].momentum: has no effect with SGD, allowed: only with MOMENTUM, "
        "NESTEROV, RMSPROP_MOMENTUM, DELAYED_NESTEROV");
  CHECK(ErrorWith("kind: ADAMW\nrule { tensors: '*' beta1: 0.5 }", {"optimizer.kind=SGD"}) ==
        "--set optimizer.kind=SGD: optimizer.rule[0].beta1: has no effect with SGD, allowed: only "
        "with ADAM, ADAMW, ADAM_AMSGRAD, ADAMW_AMSGRAD, LION");
}

TEST_CASE("a rule sets something for some tensors") {
  CHECK(ErrorWith("rule { tensors: '*/bias' }") ==
        "f:14: optimizer.rule[0]: sets nothing for its tensors, allowed: at least one of "
        "learning_rate, weight_decay, momentum, beta1, beta2, epsilon");
  CHECK(ErrorWith("rule { weight_decay: 0 }") ==
        "f:14: optimizer.rule[0].tensors: is missing, allowed: at least one pattern of tensors' "
        "names, such as \"*/bias\"");
  CHECK(ErrorWith("rule { tensors: '*/bias' tensors: '' weight_decay: 0 }") ==
        "f:14: optimizer.rule[0].tensors[1]: is \"\", allowed: a pattern of tensors' names, such "
        "as \"*/bias\"");
}

TEST_CASE("a pattern matches at least one parameter") {
  CHECK(ErrorWith("rule { tensors: '*/bias'\ntensors: '*/biass' weight_decay: 0 }") ==
        "f:15: optimizer.rule[0].tensors[1]: is \"*/biass\", which matches no parameter of the "
        "model custom, allowed: a pattern for names like conv/weight, conv/bias, norm/weight, "
        "norm/bias, fc/weight, fc/bias");
  CHECK(absl::StartsWith(ErrorWith("rule { tensors: 'norm/running_*' weight_decay: 0 }"),
                         "f:14: optimizer.rule[0].tensors[0]: is \"norm/running_*\", which matches "
                         "no parameter"));
  CHECK(ErrorWith("rule { tensors: 'norm/*' weight_decay: 0 }", {"model={builtin: 'alexnet'}"}) ==
        "--set model={builtin: 'alexnet'}: optimizer.rule[0].tensors[0]: is \"norm/*\", which "
        "matches no parameter of the model alexnet, allowed: a pattern for names like "
        "conv1/weight, conv1/bias, conv2/weight, conv2/bias, conv3/weight, conv3/bias and 10 "
        "more");
}

TEST_CASE("a rule that never counts is refused") {
  CHECK(ErrorWith("rule { tensors: '*/bias' weight_decay: 0 }\n"
                  "rule { tensors: 'fc/bias' tensors: 'norm/bias' learning_rate: 1 }") ==
        "f:15: optimizer.rule[1]: has no effect, because earlier rules match all tensors that it "
        "matches, and the first one counts, allowed: narrow patterns before wide ones");
  Valid(absl::StrCat(kNormConfig, R"(optimizer {
      rule { tensors: 'fc/bias' weight_decay: 0 }
      rule { tensors: '*/bias' learning_rate: 1 }
  })"));
}

TEST_CASE("a rule is part of the contract, with what it sets to a default") {
  const auto fingerprint = [](const std::string& rules) {
    return Valid(absl::StrCat(kNormConfig, "optimizer { weight_decay: 0.5 ", rules, " }"))
        .fingerprint();
  };
  const uint64_t without = fingerprint("");
  const uint64_t zero = fingerprint("rule { tensors: '*/bias' weight_decay: 0 }");
  const uint64_t rate = fingerprint("rule { tensors: '*/bias' learning_rate: 0.01 }");
  CHECK(zero != without);
  CHECK(rate != without);
  CHECK(zero != rate);
  CHECK(fingerprint("rule { tensors: '*/bias' weight_decay: 0 learning_rate: 0.01 }") != zero);
  CHECK(fingerprint("rule { tensors: 'fc/bias' weight_decay: 0 }") != zero);

  const PlannedConfig config = Valid(absl::StrCat(
      kNormConfig, "optimizer { weight_decay: 0.5 rule { tensors: '*/bias' weight_decay: 0 } }"));
  CHECK(config.Contract().optimizer().ShortDebugString() ==
        "weight_decay: 0.5 rule { tensors: \"*/bias\" weight_decay: 0 }");
}

}  // namespace
}  // namespace evenshard
