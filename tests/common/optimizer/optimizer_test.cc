#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "common/config/optimizer_arrays.h"

namespace evenshard {
namespace {

// Those that update parameters; MEAN replaces them.
constexpr std::array<OptimizerConfig::Kind, 12> kKinds = {
    OptimizerConfig::SGD,          OptimizerConfig::MOMENTUM,
    OptimizerConfig::NESTEROV,     OptimizerConfig::ADAM,
    OptimizerConfig::ADAGRAD,      OptimizerConfig::ADAMW,
    OptimizerConfig::RMSPROP,      OptimizerConfig::RMSPROP_MOMENTUM,
    OptimizerConfig::ADAM_AMSGRAD, OptimizerConfig::ADAMW_AMSGRAD,
    OptimizerConfig::LION,         OptimizerConfig::DELAYED_NESTEROV};

// The parameters of a shard's chunk and what the optimizer keeps beside them.
struct State {
  explicit State(std::vector<float> start) : parameters(std::move(start)) {
    for (std::vector<float>& slot : slots) slot.resize(parameters.size());
  }
  OptimizerSpan Span(size_t begin, size_t size) {
    return {absl::MakeSpan(parameters).subspan(begin, size),
            {slots[0].data() + begin, slots[1].data() + begin, slots[2].data() + begin}};
  }
  OptimizerSpan Whole() { return Span(0, parameters.size()); }
  friend bool operator==(const State&, const State&) = default;

  std::vector<float> parameters;
  std::vector<float> slots[kMaxSlots];
};

std::vector<float> RandomFloats(std::mt19937& random, size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

const UnalignedFloat* Unaligned(const void* p) { return static_cast<const UnalignedFloat*>(p); }

// One element in float64, as the papers write it.
struct Reference {
  double w = 0, state0 = 0, state1 = 0, state2 = 0;
  bool is_near_jump = false;  // of LION: in float32 a step may have had the other sign

  void Step(const OptimizerConfig& config, double gradient, double lr, int t) {
    const double mu = config.momentum(), b1 = config.beta1(), b2 = config.beta2();
    const double epsilon = config.epsilon(), decay = config.weight_decay();
    const bool is_amsgrad = config.kind() == OptimizerConfig::ADAM_AMSGRAD ||
                            config.kind() == OptimizerConfig::ADAMW_AMSGRAD;
    const bool decoupled = config.kind() == OptimizerConfig::ADAMW ||
                           config.kind() == OptimizerConfig::ADAMW_AMSGRAD ||
                           config.kind() == OptimizerConfig::LION;
    const double g = decoupled ? gradient : gradient + decay * w;
    switch (config.kind()) {
      case OptimizerConfig::SGD:
        w = w - lr * g;
        break;
      case OptimizerConfig::MOMENTUM:  // Polyak 1964, the heavy ball
        state0 = mu * state0 + g;
        w = w - lr * state0;
        break;
      case OptimizerConfig::NESTEROV: {
        // Sutskever et al. 2013, eq. 3 and 4: v' = mu v - lr grad(theta + mu v), theta' = theta
        // + v', with the gradient taken at w = theta + mu v, which is what a worker holds.
        const double theta = w - mu * state0;
        state0 = mu * state0 - lr * g;
        w = theta + state0 + mu * state0;
        break;
      }
      case OptimizerConfig::ADAM:          // Kingma and Ba 2015, algorithm 1
      case OptimizerConfig::ADAMW:         // Loshchilov and Hutter 2019, algorithm 2
      case OptimizerConfig::ADAM_AMSGRAD:  // Reddi et al. 2018, algorithm 2
      case OptimizerConfig::ADAMW_AMSGRAD: {
        const double decayed = decoupled ? lr * decay * w : 0;
        state0 = b1 * state0 + (1 - b1) * g;
        state1 = b2 * state1 + (1 - b2) * g * g;
        state2 = std::max(state2, state1);
        const double m_hat = state0 / (1 - std::pow(b1, t));
        const double v_hat = (is_amsgrad ? state2 : state1) / (1 - std::pow(b2, t));
        w = w - (lr * m_hat / (std::sqrt(v_hat) + epsilon) + decayed);
        break;
      }
      case OptimizerConfig::ADAGRAD:  // Duchi et al. 2011, diagonal form
        state0 = state0 + g * g;
        w = w - lr * g / (epsilon + std::sqrt(state0));
        break;
      case OptimizerConfig::RMSPROP:  // Tieleman and Hinton 2012, lecture 6.5
        state0 = b2 * state0 + (1 - b2) * g * g;
        w = w - lr * g / (std::sqrt(state0) + epsilon);
        break;
      case OptimizerConfig::RMSPROP_MOMENTUM:
        state0 = b2 * state0 + (1 - b2) * g * g;
        state1 = mu * state1 + g / (std::sqrt(state0) + epsilon);
        w = w - lr * state1;
        break;
      case OptimizerConfig::LION: {  // Chen et al. 2023, algorithm 2
        const double c = b1 * state0 + (1 - b1) * g;
        is_near_jump |= std::abs(c) < 1e-5;
        w = w - lr * ((c > 0) - (c < 0) + decay * w);
        state0 = b2 * state0 + (1 - b2) * g;
        break;
      }
      case OptimizerConfig::DELAYED_NESTEROV: {  // Liu et al. 2024, algorithm 3, with c = 0
        const double n = config.delay();
        state1 = state1 + g;
        if (t % config.delay() == 0) {
          state0 = mu * state0 + state1 / n;
          w = w - lr * (mu * state0 + g / n);
          state1 = 0;
        } else {
          w = w - lr * g / n;
        }
        break;
      }
      case OptimizerConfig::MEAN:
        w = gradient;
        break;
    }
  }
};

TEST_CASE("every optimizer follows its paper's formula in float64") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const OptimizerConfig::Kind kind = GENERATE(from_range(kKinds));
  const float weight_decay = GENERATE(0.0f, 0.1f);
  const float clip_value = GENERATE(0.0f, 0.3f);
  const float scale = GENERATE(1.0f, 0.25f);
  CAPTURE(OptimizerConfig::Kind_Name(kind), weight_decay, clip_value, scale);

  OptimizerConfig config;
  config.set_kind(kind);
  config.set_learning_rate(0.05f);
  config.set_weight_decay(weight_decay);
  config.set_momentum(0.8f);
  config.set_beta1(0.7f);
  config.set_beta2(0.95f);
  config.set_epsilon(1e-3f);
  config.set_delay(3);
  const auto optimizer = Optimizer::Create(config, clip_value);

  constexpr int kElements = 1003, kUpdates = 20;
  State state(RandomFloats(random, kElements));
  std::vector<Reference> reference(kElements);
  for (int i = 0; i < kElements; ++i) reference[i].w = state.parameters[i];
  for (int t = 1; t <= kUpdates; ++t) {
    const std::vector<float> gradient = RandomFloats(random, kElements);
    optimizer->Apply(state.Whole(), Unaligned(gradient.data()), scale, optimizer->NumbersOf(0), t);
    for (int i = 0; i < kElements; ++i) {
      double g = double{scale} * gradient[i];
      if (clip_value > 0) g = std::clamp(g, -double{clip_value}, double{clip_value});
      reference[i].Step(config, g, double{config.learning_rate()}, t);
    }
  }
  double error = 0;
  int compared = 0;
  for (int i = 0; i < kElements; ++i) {
    if (reference[i].is_near_jump) continue;
    ++compared;
    error = std::max(error, std::abs(state.parameters[i] - reference[i].w));
  }
  CHECK(compared > kElements / 2);
  // Each update adds a few float32 roundings of numbers below 8.
  CHECK(error < kUpdates * 4 * 8 * 0x1p-24);
}

TEST_CASE("a gradient of zeros in the first update leaves the parameters of every optimizer") {
  for (const OptimizerConfig::Kind kind : kKinds) {
    OptimizerConfig config;
    config.set_kind(kind);
    State state({1, -2, 3});
    const std::vector<float> zeros(3, 0);
    const auto optimizer = Optimizer::Create(config, 0);
    optimizer->Apply(state.Whole(), Unaligned(zeros.data()), 1, optimizer->NumbersOf(0), 1);
    CHECK(state.parameters == std::vector<float>{1, -2, 3});
  }
}

TEST_CASE("the decay of the squares or of LION's mean is 0.999, or else the rule's own") {
  for (const OptimizerConfig::Kind kind : kKinds) {
    CAPTURE(OptimizerConfig::Kind_Name(kind));
    const bool is_shorter = kind == OptimizerConfig::RMSPROP ||
                            kind == OptimizerConfig::RMSPROP_MOMENTUM ||
                            kind == OptimizerConfig::LION;
    OptimizerConfig config;
    config.set_kind(kind);
    CHECK(Optimizer::Create(config, 0)->NumbersOf(0).beta2 == (is_shorter ? 0.99f : 0.999f));
    config.set_beta2(0.999f);
    CHECK(Optimizer::Create(config, 0)->NumbersOf(0).beta2 == 0.999f);
  }
}

TEST_CASE("MEAN gives the mean gradient, whatever was there before, and what is not finite too") {
  const float infinity = std::numeric_limits<float>::infinity();
  OptimizerConfig config;
  config.set_kind(OptimizerConfig::MEAN);
  const auto optimizer = Optimizer::Create(config, 0);
  CHECK(optimizer->slots() == 0);
  State state({std::nanf(""), infinity, 1, 5});
  const std::vector<float> gradient{1, 2, -infinity, 3}, sum{1, 0, 1, 5};
  OptimizerSpan span = state.Whole();
  span.sum = sum.data();
  optimizer->Apply(span, Unaligned(gradient.data()), 0.5f, optimizer->NumbersOf(0), 1);
  CHECK(state.parameters == std::vector<float>{1, 1, -infinity, 4});
}

TEST_CASE("an optimizer uses as many slots as it says") {
  const std::vector<float> gradient(100, 1);
  for (const OptimizerConfig::Kind kind : kKinds) {
    OptimizerConfig config;
    config.set_kind(kind);
    config.set_delay(2);
    const auto optimizer = Optimizer::Create(config, 0);
    CAPTURE(OptimizerConfig::Kind_Name(kind));
    CHECK(optimizer->slots() == OptimizerArrays(kind));
    State state(std::vector<float>(100, 1));
    OptimizerSpan span = state.Whole();
    for (int slot = optimizer->slots(); slot < kMaxSlots; ++slot) span.slots[slot] = nullptr;
    std::vector<bool> used(kMaxSlots);
    for (int update = 1; update <= 2; ++update) {
      optimizer->Apply(span, Unaligned(gradient.data()), 1, optimizer->NumbersOf(0), update);
      for (int slot = 0; slot < kMaxSlots; ++slot) {
        used[slot] = used[slot] || state.slots[slot] != std::vector<float>(100, 0);
      }
    }
    for (int slot = 0; slot < kMaxSlots; ++slot) {
      CHECK(used[slot] == (slot < optimizer->slots()));
    }
  }
}

TEST_CASE("a sum beside the gradient gives the bits of their sum as the gradient") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const size_t n = 1000;
  for (const OptimizerConfig::Kind kind : kKinds) {
    CAPTURE(OptimizerConfig::Kind_Name(kind));
    OptimizerConfig config;
    config.set_kind(kind);
    config.set_weight_decay(0.01f);
    const auto optimizer = Optimizer::Create(config, /*clip_value=*/0.5f);
    State together(RandomFloats(random, n));
    State apart = together;
    const std::vector<float> sum = RandomFloats(random, n);
    const std::vector<float> gradient = RandomFloats(random, n);
    std::vector<float> total = sum;
    for (size_t i = 0; i < n; ++i) total[i] += gradient[i];
    OptimizerSpan span = together.Whole();
    span.sum = sum.data();
    optimizer->Apply(span, Unaligned(gradient.data()), 0.25f, optimizer->NumbersOf(0), 1);
    optimizer->Apply(apart.Whole(), Unaligned(total.data()), 0.25f, optimizer->NumbersOf(0), 1);
    CHECK(together == apart);
  }
}

TEST_CASE("an update in random pieces gives the bits of one in one go") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr size_t kElements = 2500;
  for (const OptimizerConfig::Kind kind : kKinds) {
    CAPTURE(OptimizerConfig::Kind_Name(kind));
    OptimizerConfig config;
    config.set_kind(kind);
    config.set_weight_decay(0.01f);
    const auto optimizer = Optimizer::Create(config, /*clip_value=*/1);
    const std::vector<float> start = RandomFloats(random, kElements);
    State whole(start), pieces(start);
    for (int t = 1; t <= 5; ++t) {
      const std::vector<float> gradient = RandomFloats(random, kElements);
      const UpdateNumbers rate = optimizer->NumbersOf(t);
      optimizer->Apply(whole.Whole(), Unaligned(gradient.data()), 0.5f, rate, t);
      for (size_t begin = 0; begin < kElements;) {
        const size_t size = std::min<size_t>(1 + random() % 100, kElements - begin);
        optimizer->Apply(pieces.Span(begin, size), Unaligned(gradient.data() + begin), 0.5f, rate,
                         t);
        begin += size;
      }
    }
    CHECK(whole == pieces);
  }
}

TEST_CASE("an unaligned gradient gives the bits of an aligned one") {
  std::mt19937 random(1);
  const std::vector<float> start = RandomFloats(random, 500), gradient = RandomFloats(random, 500);
  for (const OptimizerConfig::Kind kind : kKinds) {
    OptimizerConfig config;
    config.set_kind(kind);
    const auto optimizer = Optimizer::Create(config, 0);
    State aligned(start);
    const UpdateNumbers rate = optimizer->NumbersOf(0);
    optimizer->Apply(aligned.Whole(), Unaligned(gradient.data()), 1, rate, 1);
    for (int shift = 1; shift < 4; ++shift) {
      CAPTURE(OptimizerConfig::Kind_Name(kind), shift);
      std::vector<char> bytes(500 * sizeof(float) + shift);
      std::memcpy(bytes.data() + shift, gradient.data(), 500 * sizeof(float));
      State unaligned(start);
      optimizer->Apply(unaligned.Whole(), Unaligned(bytes.data() + shift), 1, rate, 1);
      CHECK(aligned == unaligned);
    }
  }
}

TEST_CASE("the learning rate of an update is the schedule's at its iteration") {
  OptimizerConfig config;
  config.set_learning_rate(0.5f);
  config.mutable_schedule()->set_kind(Schedule::STEP);
  config.mutable_schedule()->set_step_iterations(10);
  config.mutable_schedule()->set_gamma(0.5f);
  const auto optimizer = Optimizer::Create(config, 0);
  State state({1});
  const std::vector<float> gradient = {1};
  optimizer->Apply(state.Whole(), Unaligned(gradient.data()), 1, optimizer->NumbersOf(25),
                   /*update=*/1);
  CHECK(state.parameters[0] == 1 - 0.125f);
}

TEST_CASE("what is given with a gradient counts in place of the config's") {
  OptimizerConfig config;
  config.set_kind(OptimizerConfig::ADAMW);
  config.set_learning_rate(0.5f);
  config.set_beta2(0.75f);
  config.set_weight_decay(0.25f);
  const auto optimizer = Optimizer::Create(config, 0);
  const UpdateNumbers plain = optimizer->NumbersOf(0);
  CHECK(plain.learning_rate == 0.5);
  CHECK(plain.beta2 == 0.75f);
  CHECK(plain.weight_decay == 0.25f);
  const UpdateNumbers given = optimizer->NumbersOf(
      0, {.learning_rate = 0.125f, .momentum = 0.5f, .weight_decay = 0.0f, .epsilon = 1.0f});
  CHECK(given.learning_rate == 0.125);
  CHECK(given.beta1 == 0.5f);
  CHECK(given.beta2 == 0.75f);
  CHECK(given.weight_decay == 0);
  CHECK(given.epsilon == 1);
}

double Factor(const Schedule& schedule, int64_t iteration) {
  OptimizerConfig config;
  config.set_learning_rate(2);
  *config.mutable_schedule() = schedule;
  return Optimizer::Create(config, 0)->NumbersOf(iteration).learning_rate / 2;
}

TEST_CASE("a constant schedule keeps the learning rate") {
  CHECK(Factor(Schedule(), 0) == 1);
  CHECK(Factor(Schedule(), int64_t{1} << 40) == 1);
}

TEST_CASE("a step schedule multiplies by gamma every so many iterations") {
  Schedule schedule;
  schedule.set_kind(Schedule::STEP);
  schedule.set_step_iterations(10);
  schedule.set_gamma(0.25f);
  CHECK(Factor(schedule, 0) == 1);
  CHECK(Factor(schedule, 9) == 1);
  CHECK(Factor(schedule, 10) == 0.25);
  CHECK(Factor(schedule, 19) == 0.25);
  CHECK(Factor(schedule, 20) == 0.0625);
}

TEST_CASE("a cosine schedule falls from 1 to its final factor and stays there") {
  Schedule schedule;
  schedule.set_kind(Schedule::COSINE);
  schedule.set_total_iterations(100);
  schedule.set_final_factor(0.5f);
  CHECK(Factor(schedule, 0) == 1);
  CHECK(Factor(schedule, 25) == Approx(0.5 + 0.5 * (1 + std::sqrt(0.5)) / 2).epsilon(1e-12));
  CHECK(Factor(schedule, 50) == Approx(0.75).epsilon(1e-12));
  CHECK(Factor(schedule, 100) == Approx(0.5).epsilon(1e-12));
  CHECK(Factor(schedule, 1000) == Approx(0.5).epsilon(1e-12));
}

TEST_CASE("the warm-up rises linearly and the schedule counts from its end") {
  Schedule schedule;
  schedule.set_warmup_iterations(4);
  schedule.set_step_iterations(10);
  schedule.set_gamma(0.5f);
  schedule.set_total_iterations(10);
  for (const Schedule::Kind kind : {Schedule::CONSTANT, Schedule::STEP, Schedule::COSINE}) {
    schedule.set_kind(kind);
    CAPTURE(Schedule::Kind_Name(kind));
    for (int i = 0; i < 4; ++i) CHECK(Factor(schedule, i) == Approx((i + 1) / 5.0).epsilon(1e-12));
    CHECK(Factor(schedule, 4) == 1);
  }
  schedule.set_kind(Schedule::STEP);
  CHECK(Factor(schedule, 13) == 1);
  CHECK(Factor(schedule, 14) == 0.5);
  schedule.set_kind(Schedule::COSINE);
  CHECK(Factor(schedule, 9) == Approx(0.5).epsilon(1e-12));
  CHECK(Factor(schedule, 14) == Approx(0).margin(1e-12));
}

}  // namespace
}  // namespace evenshard
