#include "common/base/random.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "common/base/hash.h"
#include "common/base/philox.h"

namespace evenshard {
namespace {

constexpr int kSamples = 1 << 20;

TEST_CASE("Philox4x32-10 gives the known answers of Random123") {
  // The expected values are those of "philox4x32 10" in kat_vectors of Random123 1.09.
  const uint32_t f = 0xffffffff;
  CHECK(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({f, f, f, f}, {f, f}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the numbers of a stream are the words of its Philox blocks") {
  const CounterRandom random(0xa4093822'11111111u, uint64_t{0x03707344'13198a2eu});
  for (const uint64_t index : {uint64_t{0}, uint64_t{3}, uint64_t{4}, 0xfedcba9876543210u}) {
    const uint64_t block = index / 4;
    const std::array<uint32_t, 4> words = Philox4x32(
        {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), 0x13198a2e, 0x03707344},
        {0x11111111, 0xa4093822});
    CHECK(random.Bits(index) == words[index % 4]);
  }
}

TEST_CASE("a stream with a name is the stream of the name's hash") {
  // This is the published FNV-1a hash of "foobar".
  const CounterRandom named(7, "foobar");
  const CounterRandom numbered(7, uint64_t{0x85944171f73967e8});
  for (uint64_t i = 0; i < 100; ++i) CHECK(named.Bits(i) == numbered.Bits(i));
}

TEST_CASE("seed and stream both change the numbers") {
  std::set<uint32_t> first;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
    for (const uint64_t stream : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32}) {
      first.insert(CounterRandom(seed, stream).Bits(0));
    }
  }
  CHECK(first.size() == 9);
}

TEST_CASE("uniform numbers are multiples of 2^-24 in [0, 1) with the uniform moments") {
  const CounterRandom random(1, "uniform");
  double sum = 0, squares = 0;
  int outside = 0, off_grid = 0;
  for (int i = 0; i < kSamples; ++i) {
    const float u = random.Uniform(i);
    outside += !(u >= 0 && u < 1);
    off_grid += std::ldexp(u, 24) != std::floor(std::ldexp(u, 24));
    sum += u;
    squares += double{u} * u;
  }
  CHECK(outside == 0);
  CHECK(off_grid == 0);
  // The bounds are five standard errors. The variance of u is 1/12, and that of u^2 is 4/45.
  CHECK(std::abs(sum / kSamples - 0.5) < 5 * std::sqrt(1.0 / 12 / kSamples));
  CHECK(std::abs(squares / kSamples - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / kSamples));
}

TEST_CASE("filling gives the same uniform numbers as asking one by one") {
  const CounterRandom random(2, "fill");
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{6}, uint64_t{1} << 40}) {
    for (size_t size = 0; size < 12; ++size) {
      std::vector<float> filled(size, -1);
      random.FillUniform(first, absl::MakeSpan(filled));
      for (size_t i = 0; i < size; ++i) CHECK(filled[i] == random.Uniform(first + i));
    }
  }
}

TEST_CASE("filling gives the same normal numbers as asking one by one") {
  const CounterRandom random(2, "fill");
  for (const uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{6}, uint64_t{1} << 40}) {
    for (size_t size = 0; size < 12; ++size) {
      std::vector<float> filled(size, -1);
      random.FillNormal(first, absl::MakeSpan(filled));
      for (size_t i = 0; i < size; ++i) CHECK(filled[i] == random.Normal(first + i));
    }
  }
}

TEST_CASE("normal numbers are the Box-Muller transform of the bits of their pair") {
  const CounterRandom random(3, "pairs");
  double error = 0;
  for (int i = 0; i < kSamples; i += 2) {
    const double radius = std::sqrt(-2 * std::log((random.Bits(i) + 1.0) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * 0x1p-32 * random.Bits(i + 1);
    error = std::max({error, std::abs(random.Normal(i) - radius * std::cos(angle)) / radius,
                      std::abs(random.Normal(i + 1) - radius * std::sin(angle)) / radius});
  }
  CHECK(error < 0x1p-24 + 1e-10);  // the rounding to float32, and that of the series
}

TEST_CASE("normal numbers have the same bits on every processor") {
  std::vector<float> numbers(kSamples);
  CounterRandom(1, "every processor").FillNormal(0, absl::MakeSpan(numbers));
  const absl::string_view bytes(reinterpret_cast<const char*>(numbers.data()),
                                numbers.size() * sizeof(float));
  CHECK(Fnv1a64(bytes) == 0xa8b4c64227a8ad59);
}

TEST_CASE("normal numbers are finite and have the moments of the standard normal") {
  const CounterRandom random(1, "normal");
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  for (int i = 0; i < kSamples; ++i) {
    const double x = random.Normal(i);
    REQUIRE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
    if (i % 2 == 1) neighbours += x * random.Normal(i - 1);  // both numbers of a pair
  }
  // The bounds are five standard errors. The variances of x, x^2, x^4 and xy are 1, 2, 96 and 1.
  CHECK(std::abs(sum / kSamples) < 5 * std::sqrt(1.0 / kSamples));
  CHECK(std::abs(squares / kSamples - 1) < 5 * std::sqrt(2.0 / kSamples));
  CHECK(std::abs(fourths / kSamples - 3) < 5 * std::sqrt(96.0 / kSamples));
  CHECK(std::abs(neighbours / (kSamples / 2)) < 5 * std::sqrt(2.0 / kSamples));
}

TEST_CASE("a bounded number is below its bound and every value comes up equally often") {
  const CounterRandom random(1, "below");
  constexpr uint64_t kBound = 10;
  std::vector<int> counts(kBound, 0);
  for (int i = 0; i < kSamples; ++i) {
    const uint64_t value = random.Below(i, kBound);
    REQUIRE(value < kBound);
    ++counts[value];
  }
  const double expected = double{kSamples} / kBound;
  for (const int count : counts) {
    CHECK(std::abs(count - expected) < 5 * std::sqrt(expected * (1 - 1.0 / kBound)));
  }
  for (int i = 0; i < 100; ++i) {
    CHECK(random.Below(i, 1) == 0);
    CHECK(random.Below(i, 0xffffffff) < 0xffffffff);
  }
}

}  // namespace
}  // namespace evenshard
