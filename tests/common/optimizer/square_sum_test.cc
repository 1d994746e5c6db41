#include "common/optimizer/square_sum.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace evenshard {
namespace {

constexpr int64_t kElements = 30'001;  // several blocks, and no multiple of any vector's length

// Elements whose squares add up to about `norm` * `norm`, and a few that are larger by far.
std::vector<float> Elements(std::mt19937& random, double norm, int outliers = 0) {
  std::normal_distribution<double> normal(0, norm / std::sqrt(kElements));
  std::vector<float> elements(kElements);
  for (float& element : elements) element = static_cast<float>(normal(random));
  for (int i = 0; i < outliers; ++i) elements[random() % kElements] = std::ldexp(1.1f, i % 90);
  return elements;
}

SquareSum SumOf(const SquareRule& rule, const std::vector<float>& elements, float scale = 1) {
  SquareSum sum;
  REQUIRE(rule.Add(elements.data(), static_cast<int64_t>(elements.size()), scale, &sum));
  return sum;
}

}  // namespace

TEST_CASE("the sum is that of the squares, near the norm that it is for") {
  std::mt19937 random(3);
  const double max_norm = GENERATE(1e-12, 0.5, 1.0, 1e9);
  const double norm = max_norm * GENERATE(0.5, 1.0, 2.0, 1000.0);
  const SquareRule rule(max_norm, kElements);
  const std::vector<float> elements = Elements(random, norm);
  const float scale = 1.0f / 3;
  double expected = 0;
  for (const float element : elements) expected += std::pow(double{scale * element}, 2);
  CHECK(
      rule.Value(SumOf(rule, elements, scale)) ==
      Approx(expected).epsilon(0).margin(std::ldexp(max_norm * max_norm, -25) + 1e-14 * expected));
}

TEST_CASE("order and cuts change no bit of the sum") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int outliers = GENERATE(0, 3, 2000);
  const SquareRule rule(1, kElements);
  std::vector<float> elements = Elements(random, 2, outliers);
  const SquareSum::Limbs expected = SumOf(rule, elements).limbs();
  for (int i = 0; i < 10; ++i) {
    std::shuffle(elements.begin(), elements.end(), random);
    SquareSum sum;
    for (int64_t begin = 0; begin < kElements;) {
      const int64_t size = std::min<int64_t>(1 + random() % 20'000, kElements - begin);
      SquareSum part;
      REQUIRE(rule.Add(elements.data() + begin, size, 1, &part));
      sum.Add(part);
      begin += size;
    }
    REQUIRE(sum.limbs() == expected);
  }
}

TEST_CASE("an element counts the same, whether its block has a large one or not") {
  std::mt19937 random(5);
  const SquareRule rule(1, kElements);
  const std::vector<float> elements = Elements(random, 3);
  SquareSum expected = SumOf(rule, elements);
  expected.Add(SumOf(rule, {1e12f}));
  std::vector<float> with = elements;
  with.push_back(1e12f);
  CHECK(SumOf(rule, with).limbs() == expected.limbs());
}

TEST_CASE("ties are rounded to even in both ways of adding") {
  const SquareRule rule(1, 1);  // the quantum is 2^-24
  const float large = 1e6f;
  const SquareSum::Limbs of_large = SumOf(rule, {large}).limbs();
  for (const int quarters : {1, 2, 3, 5, 6, 7, 10, 14}) {  // of a quantum
    const auto element = static_cast<float>(std::sqrt(std::ldexp(quarters, -26)));
    const uint64_t fast = SumOf(rule, {element}).limbs()[0];
    CHECK(SumOf(rule, {element, large}).limbs()[0] - of_large[0] == fast);
    CHECK(fast == static_cast<uint64_t>(std::nearbyint(std::ldexp(element * double{element}, 24))));
  }
  CHECK(SumOf(rule, {std::ldexp(1.5f, -12)}).limbs()[0] == 2);  // 2.25
}

TEST_CASE("huge elements are exact, and too large a sum is infinite") {
  const SquareRule rule(1, 1000);
  CHECK(rule.Value(SumOf(rule, {1e30f, 1e30f})) ==
        Approx(2 * std::pow(double{1e30f}, 2)).epsilon(1e-15));
  const float most = std::numeric_limits<float>::max();
  CHECK(std::isinf(rule.Value(SumOf(rule, {most}))));
  SquareSum sum = SumOf(rule, {most, most, 1});
  sum.Add(SumOf(rule, {1}));
  CHECK(std::isinf(rule.Value(sum)));
  const SquareRule coarse(1e30, 1000);
  CHECK(coarse.Value(SumOf(coarse, {most})) == Approx(double{most} * most).epsilon(1e-6));
}

TEST_CASE("limits of norms at both ends of float32 are possible") {
  for (const float max_norm :
       {std::numeric_limits<float>::denorm_min(), std::numeric_limits<float>::max()}) {
    const SquareRule rule(max_norm, 1'000'000'000);
    CHECK(rule.Value(SumOf(rule, {max_norm})) == Approx(double{max_norm} * max_norm).epsilon(1e-6));
    CHECK(rule.Value(SumOf(rule, {0, -0.0f})) == 0);
  }
}

TEST_CASE("nothing is added of what is not finite") {
  const SquareRule rule(1, kElements);
  std::vector<float> elements(20'000, 1);
  const float bad =
      GENERATE(std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity());
  elements[15'000] = bad;
  SquareSum sum;
  CHECK_FALSE(rule.Add(elements.data(), 20'000, 1, &sum));
  CHECK(sum.limbs() == SquareSum::Limbs());
}

}  // namespace evenshard
