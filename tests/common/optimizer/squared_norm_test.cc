#include "common/optimizer/squared_norm.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace evenshard {
namespace {

double NormOf(const std::vector<float>& values) {
  SquaredNorm norm;
  norm.Add(0, values.data(), static_cast<int64_t>(values.size()));
  return norm.value();
}

TEST_CASE("the squared norm is exact for small integers, and 0 without elements") {
  CHECK(NormOf({}) == 0);
  std::vector<float> values;
  double expected = 0;
  for (int i = 0; i < 1000; ++i) {
    values.push_back(static_cast<float>(i % 7 - 3));
    expected += (i % 7 - 3) * (i % 7 - 3);
  }
  CHECK(NormOf(values) == expected);
}

TEST_CASE("the squared norm has the same bits however the elements are cut into runs") {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(5000);
  for (float& value : values) value = normal(random);
  const double whole = NormOf(values);
  for (int trial = 0; trial < 20; ++trial) {
    SquaredNorm norm;
    const auto size = static_cast<int64_t>(values.size());
    for (int64_t begin = 0; begin < size;) {
      const int64_t count = std::min<int64_t>(1 + random() % 100, size - begin);
      norm.Add(begin, values.data() + begin, count);
      begin += count;
    }
    CHECK(norm.value() == whole);
  }
}

TEST_CASE("the squared norm of the largest and the smallest floats is neither infinite nor 0") {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  CHECK(NormOf({kLargest, kLargest}) == 2 * static_cast<double>(kLargest) * kLargest);
  CHECK(NormOf({kSmallest}) == static_cast<double>(kSmallest) * kSmallest);
  CHECK(std::isinf(NormOf({1, std::numeric_limits<float>::infinity()})));
  CHECK(std::isnan(NormOf({1, std::numeric_limits<float>::quiet_NaN()})));
}

}  // namespace
}  // namespace evenshard
