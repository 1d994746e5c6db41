#include "server/store/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>

namespace evenshard {
namespace {

// Each rule below updates one element, given its gradient g after scaling, clipping and weight
// decay, its parameter w, and its state. A rule that decays the parameter by itself gets a gradient
// without decay. A rule is constructed for each call of Apply. Its constructor computes in double
// what is the same for all elements.

struct SgdRule {
  static constexpr int kSlots = 0;
  static constexpr bool kDecays = false;
  SgdRule(const UpdateNumbers& numbers, int64_t update) : learning_rate(numbers.learning_rate) {}
  void operator()(float g, float& w) const { w -= learning_rate * g; }
  float learning_rate;
};

struct MomentumRule {
  static constexpr int kSlots = 1;
  static constexpr bool kDecays = false;
  MomentumRule(const UpdateNumbers& numbers, int64_t update)
      : learning_rate(numbers.learning_rate), momentum(numbers.momentum) {}
  void operator()(float g, float& w, float& v) const {
    v = momentum * v + g;
    w -= learning_rate * v;
  }
  float learning_rate, momentum;
};

struct NesterovRule : MomentumRule {
  using MomentumRule::MomentumRule;
  void operator()(float g, float& w, float& v) const {
    v = momentum * v + g;
    w -= learning_rate * (g + momentum * v);
  }
};

struct AdamRule {
  static constexpr int kSlots = 2;
  static constexpr bool kDecays = false;
  AdamRule(const UpdateNumbers& numbers, int64_t update)
      : beta1(numbers.beta1),
        rest1(1.0 - numbers.beta1),
        beta2(numbers.beta2),
        rest2(1.0 - numbers.beta2),
        step(numbers.learning_rate / (1.0 - std::pow(double{numbers.beta1}, update))),
        correction(1.0 / std::sqrt(1.0 - std::pow(double{numbers.beta2}, update))),
        epsilon(numbers.epsilon) {}
  void operator()(float g, float& w, float& m, float& v) const {
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * (g * g);
    w -= step * m / (std::sqrt(v) * correction + epsilon);
  }
  float beta1, rest1, beta2, rest2;
  float step;        // learning rate with the bias correction of m
  float correction;  // bias correction of sqrt(v)
  float epsilon;
};

struct AdamWRule : AdamRule {
  static constexpr bool kDecays = true;
  AdamWRule(const UpdateNumbers& numbers, int64_t update)
      : AdamRule(numbers, update), kept(1.0 - numbers.learning_rate * numbers.weight_decay) {}
  void operator()(float g, float& w, float& m, float& v) const {
    w *= kept;
    AdamRule::operator()(g, w, m, v);
  }
  float kept;
};

struct AdaGradRule {
  static constexpr int kSlots = 1;
  static constexpr bool kDecays = false;
  AdaGradRule(const UpdateNumbers& numbers, int64_t update)
      : learning_rate(numbers.learning_rate), epsilon(numbers.epsilon) {}
  void operator()(float g, float& w, float& s) const {
    s += g * g;
    w -= learning_rate * g / (std::sqrt(s) + epsilon);
  }
  float learning_rate, epsilon;
};

struct MeanRule {
  static constexpr int kSlots = 0;
  static constexpr bool kDecays = false;
  MeanRule(const UpdateNumbers& numbers, int64_t update) {}
  void operator()(float g, float& w) const { w = g; }
};

// The preparation of a gradient for the rule.
struct Preparation {
  float scale, clip_value, weight_decay;
};

template <typename Rule, bool kHasSum>
EVENSHARD_VECTORIZED void Update(const Rule rule, const Preparation preparation,
                                 float* __restrict parameters, float* __restrict slot0,
                                 float* __restrict slot1, const float* __restrict sum,
                                 const UnalignedFloat* __restrict gradient, int64_t n) {
  const float limit = preparation.clip_value;
  for (int64_t i = 0; i < n; ++i) {
    float g = preparation.scale * (kHasSum ? sum[i] + gradient[i] : gradient[i]);
    g = g < -limit ? -limit : g;
    g = g > limit ? limit : g;
    // Not even 0 times what was there before, which need not be finite.
    if constexpr (!std::is_same_v<Rule, MeanRule>) g += preparation.weight_decay * parameters[i];
    if constexpr (Rule::kSlots == 0) {
      rule(g, parameters[i]);
    } else if constexpr (Rule::kSlots == 1) {
      rule(g, parameters[i], slot0[i]);
    } else {
      rule(g, parameters[i], slot0[i], slot1[i]);
    }
  }
}

template <typename Rule>
class ElementwiseOptimizer final : public Optimizer {
 public:
  ElementwiseOptimizer(const OptimizerConfig& config, float clip_value)
      : Optimizer(config, clip_value) {}

  int slots() const override { return Rule::kSlots; }

  void Apply(const OptimizerSpan& span, const UnalignedFloat* gradient, float scale,
             const UpdateNumbers& numbers, int64_t update) const override {
    const auto update_all = span.sum == nullptr ? &Update<Rule, false> : &Update<Rule, true>;
    update_all(Rule(numbers, update),
               {scale, clip_value_, Rule::kDecays ? 0.0f : numbers.weight_decay},
               span.parameters.data(), span.slots[0], span.slots[1], span.sum, gradient,
               static_cast<int64_t>(span.parameters.size()));
  }
};

}  // namespace

std::unique_ptr<const Optimizer> Optimizer::Create(const OptimizerConfig& config,
                                                   float clip_value) {
  switch (config.kind()) {
    case OptimizerConfig::SGD:
      break;
    case OptimizerConfig::MOMENTUM:
      return std::make_unique<ElementwiseOptimizer<MomentumRule>>(config, clip_value);
    case OptimizerConfig::NESTEROV:
      return std::make_unique<ElementwiseOptimizer<NesterovRule>>(config, clip_value);
    case OptimizerConfig::ADAM:
      return std::make_unique<ElementwiseOptimizer<AdamRule>>(config, clip_value);
    case OptimizerConfig::ADAGRAD:
      return std::make_unique<ElementwiseOptimizer<AdaGradRule>>(config, clip_value);
    case OptimizerConfig::ADAMW:
      return std::make_unique<ElementwiseOptimizer<AdamWRule>>(config, clip_value);
    case OptimizerConfig::MEAN:
      return std::make_unique<ElementwiseOptimizer<MeanRule>>(config, clip_value);
  }
  return std::make_unique<ElementwiseOptimizer<SgdRule>>(config, clip_value);
}

Optimizer::Optimizer(const OptimizerConfig& config, float clip_value)
    : config_(config),
      clip_value_(clip_value > 0 ? clip_value : std::numeric_limits<float>::infinity()) {}

UpdateNumbers Optimizer::NumbersOf(int64_t iteration, const Hyperparameters& given) const {
  return {
      .learning_rate = given.learning_rate ? double{*given.learning_rate} : LearningRate(iteration),
      .momentum = given.momentum.value_or(config_.momentum()),
      .beta1 = given.momentum.value_or(config_.beta1()),
      .beta2 = given.beta2.value_or(config_.beta2()),
      .weight_decay = given.weight_decay.value_or(config_.weight_decay()),
      .epsilon = given.epsilon.value_or(config_.epsilon())};
}

double Optimizer::LearningRate(int64_t iteration) const {
  const Schedule& schedule = config_.schedule();
  const double base = config_.learning_rate();
  const int64_t warmup = schedule.warmup_iterations();
  if (iteration < warmup) {
    return base * static_cast<double>(iteration + 1) / static_cast<double>(warmup + 1);
  }
  const int64_t count = iteration - warmup;
  switch (schedule.kind()) {
    case Schedule::CONSTANT:
      break;
    case Schedule::STEP:
      return base * std::pow(double{schedule.gamma()}, count / schedule.step_iterations());
    case Schedule::COSINE: {
      const int64_t total = schedule.total_iterations();
      const double progress =
          static_cast<double>(std::min(count, total)) / static_cast<double>(total);
      const double floor = schedule.final_factor();
      return base * (floor + (1 - floor) * (1 + std::cos(std::numbers::pi * progress)) / 2);
    }
  }
  return base;
}

}  // namespace evenshard
