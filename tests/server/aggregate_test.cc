#include "server/aggregate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <vector>

namespace ps {
namespace {

// Floats that start `shift` bytes past an aligned address.
class Shifted {
 public:
  Shifted(const std::vector<float>& values, int shift)
      : bytes_(values.size() * sizeof(float) + 64), shift_(shift) {
    const char* from = reinterpret_cast<const char*>(values.data());
    std::copy(from, from + values.size() * sizeof(float), bytes_.begin() + shift);
  }
  const UnalignedFloat* data() const {
    return reinterpret_cast<const UnalignedFloat*>(bytes_.data() + shift_);
  }

 private:
  std::vector<char> bytes_;
  int shift_;
};

std::vector<float> RandomFloats(std::mt19937& random, size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

TEST_CASE("a gradient of any alignment and length is copied and added element by element") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (const size_t n : {0, 1, 7, 16, 33, 1000, 5000}) {
    for (int shift = 0; shift < 5; ++shift) {
      CAPTURE(n, shift);
      const std::vector<float> gradient = RandomFloats(random, n), start = RandomFloats(random, n);
      // One element more shows a write past the end.
      std::vector<float> sum = start;
      sum.push_back(42);
      AddGradient(sum.data(), Shifted(gradient, shift).data(), n);
      std::vector<float> expected;
      for (size_t i = 0; i < n; ++i) expected.push_back(start[i] + gradient[i]);
      expected.push_back(42);
      CHECK(sum == expected);

      CopyGradient(sum.data(), Shifted(gradient, shift).data(), n);
      expected = gradient;
      expected.push_back(42);
      CHECK(sum == expected);
    }
  }
}

TEST_CASE("finite values of every size are not taken for NaN or infinity") {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values(5000);
  const float extremes[] = {
      0, -0.0f, Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min()};
  for (size_t i = 0; i < values.size(); ++i) values[i] = extremes[i % 6];
  for (int shift = 0; shift < 5; ++shift) {
    CHECK(FindNonFinite(Shifted(values, shift).data(), values.size()) == -1);
  }
  CHECK(FindNonFinite(Shifted(values, 0).data(), 0) == -1);
}

TEST_CASE("the first NaN or infinity is found wherever it is") {
  using Limits = std::numeric_limits<float>;
  const float bad = GENERATE(Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
                             Limits::infinity(), -Limits::infinity());
  const size_t n = 3000;
  for (const size_t first : {0, 1, 15, 1023, 1024, 1025, 2047, 2500, 2999}) {
    for (int shift = 0; shift < 4; ++shift) {
      CAPTURE(first, shift);
      std::vector<float> values(n, 1);
      values[first] = values[n - 1] = bad;
      CHECK(FindNonFinite(Shifted(values, shift).data(), n) == static_cast<int64_t>(first));
      // Not looked for past the end.
      CHECK(FindNonFinite(Shifted(values, shift).data(), first) == -1);
    }
  }
}

}  // namespace
}  // namespace ps
