#include "common/wire/non_finite.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace evenshard {
namespace {

// Holds elements that start `shift` bytes after an aligned address.
template <typename Element>
class Shifted {
 public:
  Shifted(const std::vector<Element>& values, int shift)
      : bytes_(values.size() * sizeof(Element) + 64), shift_(shift) {
    const char* from = reinterpret_cast<const char*>(values.data());
    std::copy(from, from + values.size() * sizeof(Element), bytes_.begin() + shift);
  }
  const char* data() const { return bytes_.data() + shift_; }

 private:
  std::vector<char> bytes_;
  int shift_;
};

int64_t FindFloat(const std::vector<float>& values, int shift, int64_t n) {
  const Shifted<float> shifted(values, shift);
  return FindNonFinite(reinterpret_cast<const UnalignedFloat*>(shifted.data()), n);
}

constexpr uint16_t kFloat16Exponent = 0x7c00;

int64_t FindHalf(const std::vector<uint16_t>& values, int shift, int64_t n) {
  const Shifted<uint16_t> shifted(values, shift);
  return FindNonFinite(reinterpret_cast<const UnalignedHalf*>(shifted.data()), n, kFloat16Exponent);
}

TEST_CASE("finite values of every size are not taken for NaN or infinity") {
  using Limits = std::numeric_limits<float>;
  std::vector<float> values(5000);
  const float extremes[] = {
      0, -0.0f, Limits::max(), Limits::lowest(), Limits::min(), Limits::denorm_min()};
  for (size_t i = 0; i < values.size(); ++i) values[i] = extremes[i % 6];
  for (int shift = 0; shift < 5; ++shift) CHECK(FindFloat(values, shift, 5000) == -1);
  CHECK(FindFloat(values, 0, 0) == -1);

  std::vector<uint16_t> halves;
  for (int bits = 0; bits < 1 << 16; ++bits) {
    if ((bits & kFloat16Exponent) != kFloat16Exponent) halves.push_back(bits);
  }
  for (int shift = 0; shift < 3; ++shift) {
    CHECK(FindHalf(halves, shift, static_cast<int64_t>(halves.size())) == -1);
  }
}

TEST_CASE("the first NaN or infinity is found wherever it is") {
  using Limits = std::numeric_limits<float>;
  const float bad = GENERATE(Limits::quiet_NaN(), -Limits::quiet_NaN(), Limits::signaling_NaN(),
                             Limits::infinity(), -Limits::infinity());
  const uint16_t bad_half = std::bit_cast<uint32_t>(bad) >> 31 != 0 ? 0xfc00 : 0x7c01;
  const size_t n = 3000;
  for (const size_t first : {0, 1, 15, 1023, 1024, 1025, 2047, 2500, 2999}) {
    for (int shift = 0; shift < 4; ++shift) {
      CAPTURE(first, shift);
      std::vector<float> values(n, 1);
      values[first] = values[n - 1] = bad;
      CHECK(FindFloat(values, shift, n) == static_cast<int64_t>(first));
      CHECK(FindFloat(values, shift, first) == -1);  // nothing is found past the end

      std::vector<uint16_t> halves(n, 0x3c00);
      halves[first] = halves[n - 1] = bad_half;
      CHECK(FindHalf(halves, shift, n) == static_cast<int64_t>(first));
      CHECK(FindHalf(halves, shift, first) == -1);
    }
  }
}

}  // namespace
}  // namespace evenshard
