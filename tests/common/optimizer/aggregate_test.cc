#include "common/optimizer/aggregate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace evenshard {
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

TEST_CASE("a gradient of any alignment and length is added element by element") {
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
    }
  }
}

}  // namespace
}  // namespace evenshard
