#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/config/config_contract.h"
#include "common/config/config_validation.h"
#include "common/config/optimizer_numbers.h"
#include "common/config/optimizer_rules.h"

namespace evenshard {
namespace {

constexpr char kZeroToBelowOne[] = "at least 0 and below 1";
bool IsFraction(double value) { return value >= 0 && value < 1; }

void ValidateSchedule(const Schedule& schedule, const std::string& optimizer,
                      FieldProblems* problems) {
  const std::string kind = Schedule::Kind_Name(schedule.kind());
  const bool step = schedule.kind() == Schedule::STEP;
  const bool cosine = schedule.kind() == Schedule::COSINE;
  const std::string prefix = optimizer + ".schedule.";
  const std::string kind_field = prefix + "kind";
  const auto validate_use = [&](bool is_set, bool is_used, const char* field, const char* used_by) {
    ValidateUse(is_set, is_used, prefix + field, kind_field, kind, used_by, problems);
  };
  validate_use(schedule.has_step_iterations(), step, "step_iterations", "STEP");
  validate_use(schedule.has_gamma(), step, "gamma", "STEP");
  validate_use(schedule.has_total_iterations(), cosine, "total_iterations", "COSINE");
  validate_use(schedule.has_final_factor(), cosine, "final_factor", "COSINE");

  const auto require = [&](bool ok, const char* field, const absl::AlphaNum& value,
                           const char* allowed) {
    problems->Require(ok, prefix + field, value, allowed, {kind_field});
  };
  require(schedule.warmup_iterations() >= 0, "warmup_iterations", schedule.warmup_iterations(),
          "at least 0");
  if (step) {
    require(schedule.step_iterations() >= 1, "step_iterations", schedule.step_iterations(),
            "at least 1");
    require(IsAboveZero(schedule.gamma()), "gamma", schedule.gamma(), kAboveZero);
  }
  if (cosine) {
    require(schedule.total_iterations() >= 1, "total_iterations", schedule.total_iterations(),
            "at least 1");
    require(schedule.final_factor() >= 0 && schedule.final_factor() <= 1, "final_factor",
            schedule.final_factor(), "0 to 1");
  }
}

// "SGD, MOMENTUM": the kinds for which `is_meant` is true.
template <typename Predicate>
std::string Kinds(Predicate is_meant) {
  std::string kinds;
  for (int kind = OptimizerConfig::Kind_MIN; kind <= OptimizerConfig::Kind_MAX; ++kind) {
    const auto value = static_cast<OptimizerConfig::Kind>(kind);
    if (!is_meant(value)) continue;
    absl::StrAppend(&kinds, kinds.empty() ? "" : ", ", OptimizerConfig::Kind_Name(value));
  }
  return kinds;
}

// Refuses numbers that have no effect with `kind` or are out of their range. `optimizer` is the
// path of the optimizer, and `prefix` of the message that sets them: "optimizer." or
// "optimizer.rule[0].".
void ValidateNumbers(OptimizerConfig::Kind kind, const OptimizerConfig& numbers,
                     const std::string& optimizer, const std::string& prefix,
                     FieldProblems* problems) {
  const auto validate_use = [&](bool is_set, bool OptimizerNumbers::*number, const char* field) {
    const auto has_number = [&](OptimizerConfig::Kind each) { return NumbersOfKind(each).*number; };
    ValidateUse(is_set, has_number(kind), prefix + field, optimizer + ".kind",
                OptimizerConfig::Kind_Name(kind), Kinds(has_number), problems);
  };
  validate_use(numbers.has_momentum(), &OptimizerNumbers::momentum, "momentum");
  validate_use(numbers.has_beta1(), &OptimizerNumbers::beta1, "beta1");
  validate_use(numbers.has_beta2(), &OptimizerNumbers::beta2, "beta2");
  validate_use(numbers.has_epsilon(), &OptimizerNumbers::epsilon, "epsilon");
  validate_use(numbers.has_delay(), &OptimizerNumbers::delay, "delay");

  const auto require = [&](bool ok, const char* field, float value, const char* allowed) {
    problems->Require(ok, prefix + field, value, allowed);
  };
  require(IsAboveZero(numbers.learning_rate()), "learning_rate", numbers.learning_rate(),
          kAboveZero);
  require(IsAtLeastZero(numbers.weight_decay()), "weight_decay", numbers.weight_decay(),
          kAtLeastZero);
  require(IsFraction(numbers.momentum()), "momentum", numbers.momentum(), kZeroToBelowOne);
  require(IsFraction(numbers.beta1()), "beta1", numbers.beta1(), kZeroToBelowOne);
  require(IsFraction(numbers.beta2()), "beta2", numbers.beta2(), kZeroToBelowOne);
  require(IsAboveZero(numbers.epsilon()), "epsilon", numbers.epsilon(), kAboveZero);
  problems->Require(!numbers.has_delay() || numbers.delay() >= 1, prefix + "delay", numbers.delay(),
                    "at least 1");
}

void ValidateRule(const OptimizerConfig& optimizer, const std::string& optimizer_path, int index,
                  FieldProblems* problems) {
  const OptimizerConfig::Rule& rule = optimizer.rule(index);
  const std::string path = RulePath(optimizer_path, index);
  if (rule.tensors().empty()) {
    problems->Add(
        path + ".tensors",
        "is missing, allowed: at least one pattern of tensors' names, such as \"*/bias\"");
  }
  for (int i = 0; i < rule.tensors_size(); ++i) {
    if (!rule.tensors(i).empty()) continue;
    problems->Add(PatternPath(optimizer_path, index, i),
                  "is \"\", allowed: a pattern of tensors' names, such as \"*/bias\"");
  }
  const OptimizerConfig numbers = NumbersOf(rule);
  if (numbers.ByteSizeLong() == 0) {
    problems->Add(path,
                  "sets nothing for its tensors, allowed: at least one of learning_rate, "
                  "weight_decay, momentum, beta1, beta2, epsilon");
  }
  ValidateNumbers(optimizer.kind(), numbers, optimizer_path, path + ".", problems);
}

void ValidateRules(const OptimizerConfig& optimizer, const std::string& path,
                   FieldProblems* problems) {
  ValidateNumbers(optimizer.kind(), optimizer, path, path + ".", problems);
  ValidateSchedule(optimizer.schedule(), path, problems);
  for (int i = 0; i < optimizer.rule_size(); ++i) ValidateRule(optimizer, path, i, problems);
}

// With MEAN the workers have the rule.
void ValidateMean(const ClusterConfig& config, FieldProblems* problems) {
  const OptimizerConfig& optimizer = config.optimizer();
  const bool is_mean = optimizer.kind() == OptimizerConfig::MEAN;
  ValidateUse(optimizer.has_stepped_by(), is_mean, "optimizer.stepped_by", "optimizer.kind",
              OptimizerConfig::Kind_Name(optimizer.kind()), "MEAN", problems);
  if (!is_mean) return;
  const auto refuse = [&](bool is_set, const char* field, const char* why) {
    if (!is_set) return;
    problems->Add(
        field,
        absl::StrCat("is given, and optimizer.kind is MEAN, where ", why, "; allowed: without it"),
        {"optimizer.kind"});
  };
  constexpr char kRule[] = "the workers' own optimizers have the rule";
  refuse(optimizer.has_learning_rate(), "optimizer.learning_rate", kRule);
  refuse(optimizer.has_weight_decay(), "optimizer.weight_decay", kRule);
  refuse(optimizer.has_schedule(), "optimizer.schedule", kRule);
  refuse(optimizer.rule_size() > 0, "optimizer.rule[0]", kRule);
  refuse(config.update().has_non_finite(), "update.non_finite",
         "what is not finite reaches all workers");
  refuse(config.recovery().has_checkpoint(), "recovery.checkpoint",
         "the shards have no parameters that could be saved");
  problems->Require(!IsAsynchronous(config.update()), "update.policy",
                    Update::Policy_Name(config.update().policy()),
                    "SYNC with optimizer.kind MEAN, the mean over all workers", {"optimizer.kind"});
  problems->Require(config.model().has_from_workers(), "optimizer.kind", "MEAN",
                    absl::StrCat(Kinds([](auto kind) { return kind != OptimizerConfig::MEAN; }),
                                 "; MEAN only with model.from_workers, whose programs have an "
                                 "optimizer"),
                    {"model"});
}

// The range of the shards' learning rate with local steps. Known ones are from 0.07 to 1
// (docs/modes.md), those of optimizers that take a step for each batch mostly far below.
constexpr float kLeastOuterRate = 0.02F;
constexpr float kMostOuterRate = 2;

// The shards' optimizer in a run with local steps.
void ValidateOuter(const ClusterConfig& config, FieldProblems* problems) {
  const OptimizerConfig& outer = config.optimizer();
  const bool has_outer_kind = outer.kind() == OptimizerConfig::SGD ||
                              outer.kind() == OptimizerConfig::MOMENTUM ||
                              outer.kind() == OptimizerConfig::NESTEROV ||
                              outer.kind() == OptimizerConfig::DELAYED_NESTEROV;
  problems->Require(has_outer_kind, "optimizer.kind", OptimizerConfig::Kind_Name(outer.kind()),
                    "SGD, MOMENTUM, NESTEROV, DELAYED_NESTEROV with local steps, where "
                    "local.optimizer has the rule for batches",
                    {"local"});
  const float rate = outer.learning_rate();
  problems->Require(
      !outer.has_learning_rate() || (rate >= kLeastOuterRate && rate <= kMostOuterRate),
      "optimizer.learning_rate", rate,
      absl::StrCat(kLeastOuterRate, " to ", kMostOuterRate,
                   " with local steps, whose whole round it multiplies; "
                   "local.optimizer.learning_rate is that of a batch"),
      {"local"});
}

void ValidateLocal(const ClusterConfig& config, FieldProblems* problems) {
  const LocalSteps& local = config.local();
  const bool is_from_workers = config.model().has_from_workers();
  const auto refuse = [&](bool is_set, const char* field, const char* why) {
    if (is_set) problems->Add(field, absl::StrCat("is given with ", why, ", allowed: without it"));
  };
  if (!local.has_steps()) {
    problems->Add("local.steps",
                  "is missing, allowed: at least 1, the batches between two exchanges");
  } else {
    problems->Require(local.steps() >= 1, "local.steps", local.steps(), "at least 1");
  }
  problems->Require(local.seconds() >= 0 && local.seconds() <= kMaxSeconds, "local.seconds",
                    local.seconds(), absl::StrCat("0 to ", kMaxSeconds, " seconds"));
  problems->Require(IsAtLeastZero(local.clip_global_norm()), "local.clip_global_norm",
                    local.clip_global_norm(), kAtLeastZero);
  problems->Require(local.fragments() >= 1 && local.fragments() <= std::max(local.steps(), 1),
                    "local.fragments", local.fragments(),
                    absl::StrCat("1 to local.steps, ", local.steps(),
                                 ": a fragment is exchanged after a batch of its own"),
                    {"local.steps"});
  const int apart = local.steps() / std::max(local.fragments(), 1);
  problems->Require(local.overlap_steps() >= 0 && local.overlap_steps() < std::max(apart, 1),
                    "local.overlap_steps", local.overlap_steps(),
                    absl::StrCat("at least 0, below the ", apart,
                                 " batches between the exchanges of two fragments"),
                    {"local.steps", "local.fragments"});
  problems->Require(IsFraction(local.mixing()), "local.mixing", local.mixing(), kZeroToBelowOne);
  problems->Require(!IsAsynchronous(config.update()) || config.update().clip_global_norm() == 0,
                    "update.clip_global_norm", config.update().clip_global_norm(),
                    "0 with local steps and ASYNC or SSP; local.clip_global_norm clips the "
                    "gradient of each batch",
                    {"update.policy"});
  if (local.fragments() > 1 || local.overlap_steps() > 0) {
    problems->Require(config.update().policy() != Update::QUORUM, "update.policy", "QUORUM",
                      "SYNC, SSP, ASYNC with local.fragments or local.overlap_steps, since a "
                      "fragment that is dropped would leave the others behind",
                      {"local"});
    problems->Require(local.seconds() == 0, "local.seconds", local.seconds(),
                      "0 with local.fragments or local.overlap_steps, which count batches");
    problems->Require(config.exchange().schedule() != ExchangeConfig::SEQUENTIAL ||
                          !config.exchange().has_schedule(),
                      "exchange.schedule", "SEQUENTIAL",
                      "BACKWARD, FULL with local.fragments or local.overlap_steps, whose pushes "
                      "do not wait for each other",
                      {"local"});
  }
  if (is_from_workers) {
    constexpr char kProgram[] = "model.from_workers, where the program has the optimizer";
    refuse(local.has_optimizer(), "local.optimizer", kProgram);
    refuse(local.has_clip_global_norm(), "local.clip_global_norm", kProgram);
    refuse(local.has_fragments(), "local.fragments",
           "model.from_workers, whose program exchanges all tensors at once");
    refuse(local.has_overlap_steps(), "local.overlap_steps",
           "model.from_workers, whose program waits for the answer");
    refuse(local.has_mixing(), "local.mixing",
           "model.from_workers, whose program waits for the answer");
  } else {
    refuse(local.has_stepped_by(), "local.stepped_by", "a model that the config has");
    if (!local.has_optimizer()) {
      problems->Add("local.optimizer",
                    "is missing, allowed: the optimizer with which a worker trains on each batch, "
                    "such as { kind: ADAMW learning_rate: 0.001 }");
    }
    const bool is_inner = local.optimizer().kind() != OptimizerConfig::MEAN &&
                          local.optimizer().kind() != OptimizerConfig::DELAYED_NESTEROV;
    problems->Require(is_inner, "local.optimizer.kind",
                      OptimizerConfig::Kind_Name(local.optimizer().kind()), Kinds([](auto kind) {
                        return kind != OptimizerConfig::MEAN &&
                               kind != OptimizerConfig::DELAYED_NESTEROV;
                      }));
    refuse(local.optimizer().has_stepped_by(), "local.optimizer.stepped_by",
           "a rule that the config has");
    ValidateRules(local.optimizer(), kLocalOptimizerPath, problems);
  }
  ValidateOuter(config, problems);
}

void ValidateCorrection(const ClusterConfig& config, FieldProblems* problems) {
  const Asynchrony& asynchrony = config.update().asynchrony();
  const Asynchrony::Correction correction = asynchrony.correction();
  const bool has_lambda = correction == Asynchrony::DELAY_COMPENSATION ||
                          correction == Asynchrony::ADAPTIVE_DELAY_COMPENSATION;
  ValidateUse(asynchrony.has_lambda(), has_lambda, "update.asynchrony.lambda",
              "update.asynchrony.correction", Asynchrony::Correction_Name(correction),
              "DELAY_COMPENSATION and ADAPTIVE_DELAY_COMPENSATION", problems);
  if (has_lambda) {
    problems->Require(!asynchrony.has_lambda() || IsAboveZero(asynchrony.lambda()),
                      "update.asynchrony.lambda", asynchrony.lambda(), kAboveZero,
                      {"update.asynchrony.correction"});
  }
  if (correction != Asynchrony::NONE && config.has_local()) {
    problems->Add("update.asynchrony.correction",
                  absl::StrCat("is ", Asynchrony::Correction_Name(correction),
                               " with local, where workers push what several steps have changed "
                               "and no gradient, allowed: NONE, with optimizer.kind "
                               "DELAYED_NESTEROV or rate BY_STALENESS"),
                  {"local"});
  }
}

}  // namespace

void ValidateOptimizer(const ClusterConfig& config, FieldProblems* problems) {
  const OptimizerConfig& optimizer = config.optimizer();
  ValidateMean(config, problems);
  const bool has_velocity = optimizer.kind() == OptimizerConfig::MOMENTUM ||
                            optimizer.kind() == OptimizerConfig::NESTEROV;
  const bool is_known = optimizer.has_kind() || !config.model().has_from_workers();
  problems->Require(!config.update().asynchrony().has_velocity() || has_velocity || !is_known,
                    "update.asynchrony.velocity",
                    Asynchrony::Velocity_Name(config.update().asynchrony().velocity()),
                    "only with optimizer.kind MOMENTUM and NESTEROV, whose state is a velocity",
                    {"optimizer"});
  ValidateCorrection(config, problems);
  ValidateRules(optimizer, kOptimizerPath, problems);
  if (config.has_local()) ValidateLocal(config, problems);
}

}  // namespace evenshard
