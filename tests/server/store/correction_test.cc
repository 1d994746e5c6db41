#include "server/store/correction.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace evenshard {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kElements = 1003;

Floats Drawn(uint32_t seed, float size) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, size);
  Floats numbers(kElements);
  for (float& number : numbers) number = normal(random);
  return numbers;
}

struct Arrays {
  Floats gradient = Drawn(1, 1);
  Floats parameters = Drawn(2, 1);
  Floats sent = Drawn(3, 1);
  Floats mean_square = Floats(kElements, 0.25f);
};

Floats Corrected(Asynchrony::Correction kind, float lambda, Arrays& arrays, bool is_sent = true,
                 float scale = 0.5f) {
  Floats corrected(kElements);
  // At an odd address, as received gradients may be.
  std::vector<char> bytes(1 + kElements * sizeof(float));
  std::memcpy(bytes.data() + 1, arrays.gradient.data(), kElements * sizeof(float));
  Correction(kind, lambda)
      .Correct(reinterpret_cast<const UnalignedFloat*>(bytes.data() + 1), scale,
               arrays.parameters.data(), is_sent ? arrays.sent.data() : nullptr,
               arrays.mean_square.data(), corrected.data(), kElements);
  return corrected;
}

Approx Near(double value) { return Approx(value).epsilon(1e-5).margin(1e-7); }

}  // namespace

TEST_CASE("delay compensation adds lambda g g (w - w_sent)") {
  Arrays arrays;
  const Floats corrected = Corrected(Asynchrony::DELAY_COMPENSATION, 0.25f, arrays);
  for (int64_t i = 0; i < kElements; ++i) {
    const double g = 0.5 * arrays.gradient[i];
    CHECK(corrected[i] == Near(g + 0.25 * g * g * (arrays.parameters[i] - double{arrays.sent[i]})));
  }
  CHECK(arrays.mean_square == Floats(kElements, 0.25f));
}

TEST_CASE("its lambda may be divided by the root of the mean square of gradients") {
  Arrays arrays;
  const Floats corrected = Corrected(Asynchrony::ADAPTIVE_DELAY_COMPENSATION, 2, arrays);
  for (int64_t i = 0; i < kElements; ++i) {
    const double g = 0.5 * arrays.gradient[i];
    const double square = 0.95 * 0.25 + 0.05 * g * g;
    CHECK(arrays.mean_square[i] == Near(square));
    CHECK(corrected[i] == Near(g + 2 / std::sqrt(square + 1e-7) * g * g *
                                       (arrays.parameters[i] - double{arrays.sent[i]})));
  }
}

TEST_CASE("a gradient may be divided by its gap in steps") {
  Arrays arrays;
  const Floats corrected = Corrected(Asynchrony::GAP_AWARE, 0, arrays);
  for (int64_t i = 0; i < kElements; ++i) {
    const double gap = std::abs(arrays.parameters[i] - double{arrays.sent[i]});
    CHECK(corrected[i] == Near(0.5 * arrays.gradient[i] / (1 + gap / 0.5)));
  }
  CHECK(arrays.mean_square == Floats(kElements, 0.25f));
}

TEST_CASE("the size of steps begins with the first one") {
  const Floats before = Drawn(1, 1), after = Drawn(2, 1), later = Drawn(3, 1);
  Floats mean_square(kElements);
  Correction::TakeSteps(before.data(), after.data(), mean_square.data(), kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    const double d = double{after[i]} - before[i];
    CHECK(mean_square[i] == Near(d * d));
  }
  const Floats first = mean_square;
  Correction::TakeSteps(after.data(), later.data(), mean_square.data(), kElements);
  for (int64_t i = 0; i < kElements; ++i) {
    const double d = double{later[i]} - after[i];
    CHECK(mean_square[i] == Near(0.95 * first[i] + 0.05 * d * d));
  }
}

TEST_CASE("without what was sent, or without a change since, the gradient stays as it is") {
  const auto kind = GENERATE(Asynchrony::DELAY_COMPENSATION,
                             Asynchrony::ADAPTIVE_DELAY_COMPENSATION, Asynchrony::GAP_AWARE);
  const bool is_sent = GENERATE(false, true);
  Arrays arrays;
  if (is_sent) arrays.sent = arrays.parameters;
  // Nothing has moved yet.
  if (kind == Asynchrony::GAP_AWARE) arrays.mean_square = Floats(kElements, 0);
  const Floats corrected = Corrected(kind, 2, arrays, is_sent);
  for (int64_t i = 0; i < kElements; ++i) CHECK(corrected[i] == 0.5f * arrays.gradient[i]);
  // The mean square of gradients goes on all the same.
  if (kind == Asynchrony::ADAPTIVE_DELAY_COMPENSATION) CHECK(arrays.mean_square[0] != 0.25f);
}

TEST_CASE("a gap of an element that has hardly moved leaves numbers finite") {
  Arrays arrays;
  arrays.mean_square = Floats(kElements, 0);
  arrays.sent.assign(kElements, std::numeric_limits<float>::max());
  for (const float element : Corrected(Asynchrony::GAP_AWARE, 0, arrays)) CHECK(element == 0);
}

}  // namespace evenshard
