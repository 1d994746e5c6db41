#include "common/optimizer/optimizer.h"

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
    Average(g, m, v);
    Move(w, m, v);
  }
  void Average(float g, float& m, float& v) const {
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * (g * g);
  }
  void Move(float& w, float m, float v) const {
    w -= step * m / (std::sqrt(v) * correction + epsilon);
  }
  float beta1, rest1, beta2, rest2;
  float step;        // learning rate with the bias correction of m
  float correction;  // bias correction of sqrt(v)
  float epsilon;
};

struct AmsgradRule : AdamRule {
  static constexpr int kSlots = 3;
  using AdamRule::AdamRule;
  void operator()(float g, float& w, float& m, float& v, float& largest) const {
    Average(g, m, v);
    largest = v > largest ? v : largest;
    Move(w, m, largest);
  }
};

struct LionRule {
  static constexpr int kSlots = 1;
  static constexpr bool kDecays = false;
  LionRule(const UpdateNumbers& numbers, int64_t update)
      : beta1(numbers.beta1),
        rest1(1.0 - numbers.beta1),
        beta2(numbers.beta2),
        rest2(1.0 - numbers.beta2),
        learning_rate(numbers.learning_rate) {}
  void operator()(float g, float& w, float& m) const {
    const float direction = beta1 * m + rest1 * g;
    w -= direction > 0 ? learning_rate : direction < 0 ? -learning_rate : 0.0f;
    m = beta2 * m + rest2 * g;
  }
  float beta1, rest1, beta2, rest2;
  float learning_rate;
};

// A rule, before which the parameter decays by itself.
template <typename Rule>
struct Decoupled : Rule {
  static constexpr bool kDecays = true;
  Decoupled(const UpdateNumbers& numbers, int64_t update)
      : Rule(numbers, update), kept(1.0 - numbers.learning_rate * numbers.weight_decay) {}
  template <typename... State>
  void operator()(float g, float& w, State&... state) const {
    w *= kept;
    Rule::operator()(g, w, state...);
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

struct RmsPropRule {
  static constexpr int kSlots = 1;
  static constexpr bool kDecays = false;
  RmsPropRule(const UpdateNumbers& numbers, int64_t update)
      : beta2(numbers.beta2),
        rest2(1.0 - numbers.beta2),
        learning_rate(numbers.learning_rate),
        epsilon(numbers.epsilon) {}
  void operator()(float g, float& w, float& s) const { w -= learning_rate * Scaled(g, s); }
  float Scaled(float g, float& s) const {
    s = beta2 * s + rest2 * (g * g);
    return g / (std::sqrt(s) + epsilon);
  }
  float beta2, rest2;
  float learning_rate, epsilon;
};

struct RmsPropMomentumRule : RmsPropRule {
  static constexpr int kSlots = 2;
  RmsPropMomentumRule(const UpdateNumbers& numbers, int64_t update)
      : RmsPropRule(numbers, update), momentum(numbers.momentum) {}
  void operator()(float g, float& w, float& s, float& v) const {
    v = momentum * v + Scaled(g, s);
    w -= learning_rate * v;
  }
  float momentum;
};

struct DelayedNesterovRule {
  static constexpr int kSlots = 2;
  static constexpr bool kDecays = false;
  DelayedNesterovRule(const UpdateNumbers& numbers, int64_t update)
      : learning_rate(numbers.learning_rate),
        momentum(numbers.momentum),
        part(1.0 / numbers.delay),
        is_due(update % numbers.delay == 0) {}
  void operator()(float g, float& w, float& v, float& d) const {
    d += g;
    const float due = momentum * v + part * d;
    v = is_due ? due : v;
    d = is_due ? 0.0f : d;
    w -= learning_rate * (part * g + (is_due ? momentum * v : 0.0f));
  }
  float learning_rate, momentum;
  float part;   // of the mean that one gradient is
  bool is_due;  // whether the momentum takes them up
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
                                 float* __restrict slot1, float* __restrict slot2,
                                 const float* __restrict sum,
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
    } else if constexpr (Rule::kSlots == 2) {
      rule(g, parameters[i], slot0[i], slot1[i]);
    } else {
      rule(g, parameters[i], slot0[i], slot1[i], slot2[i]);
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
               span.parameters.data(), span.slots[0], span.slots[1], span.slots[2], span.sum,
               gradient, static_cast<int64_t>(span.parameters.size()));
  }
};

float DefaultBeta2(OptimizerConfig::Kind kind) {
  switch (kind) {
    case OptimizerConfig::RMSPROP:
    case OptimizerConfig::RMSPROP_MOMENTUM:
    case OptimizerConfig::LION:
      return 0.99f;
    default:
      return 0.999f;
  }
}

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
      return std::make_unique<ElementwiseOptimizer<Decoupled<AdamRule>>>(config, clip_value);
    case OptimizerConfig::RMSPROP:
      return std::make_unique<ElementwiseOptimizer<RmsPropRule>>(config, clip_value);
    case OptimizerConfig::RMSPROP_MOMENTUM:
      return std::make_unique<ElementwiseOptimizer<RmsPropMomentumRule>>(config, clip_value);
    case OptimizerConfig::ADAM_AMSGRAD:
      return std::make_unique<ElementwiseOptimizer<AmsgradRule>>(config, clip_value);
    case OptimizerConfig::ADAMW_AMSGRAD:
      return std::make_unique<ElementwiseOptimizer<Decoupled<AmsgradRule>>>(config, clip_value);
    case OptimizerConfig::LION:
      return std::make_unique<ElementwiseOptimizer<Decoupled<LionRule>>>(config, clip_value);
    case OptimizerConfig::MEAN:
      return std::make_unique<ElementwiseOptimizer<MeanRule>>(config, clip_value);
    case OptimizerConfig::DELAYED_NESTEROV:
      return std::make_unique<ElementwiseOptimizer<DelayedNesterovRule>>(config, clip_value);
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
      .beta2 = given.beta2.value_or(config_.has_beta2() ? config_.beta2()
                                                        : DefaultBeta2(config_.kind())),
      .weight_decay = given.weight_decay.value_or(config_.weight_decay()),
      .epsilon = given.epsilon.value_or(config_.epsilon()),
      .delay = std::max(config_.delay(), 1)};
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
