#include "common/base/random.h"

#include <cmath>
#include <numbers>

#include "common/base/hash.h"
#include "common/base/philox.h"

namespace evenshard {
namespace {

template <size_t kTerms>
double Polynomial(const double (&coefficients)[kTerms], double x) {
  double value = 0;
  for (size_t i = kTerms; i > 0; --i) value = value * x + coefficients[i - 1];
  return value;
}

// The logarithm, sine and cosine below are good to about 1e-11, far more than float32 needs. They
// are not the C library's, whose last bit depends on the processor: the copies of a parameter on
// different machines must begin equal.

// Returns ln(x) for x in (0, 1], by ln(m) = 2 * artanh(s) with s = (m - 1) / (m + 1).
double Log(double x) {
  static constexpr double kArtanh[] = {1, 1.0 / 3, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13};
  int exponent;
  double mantissa = std::frexp(x, &exponent);  // in [1/2, 1)
  if (mantissa < std::numbers::sqrt2 / 2) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  return exponent * std::numbers::ln2 + 2 * s * Polynomial(kArtanh, s * s);
}

struct Point {
  double x, y;
};

// Returns the point of the unit circle at bits * 2^-32 of a turn, by its distance from the nearest
// quarter turn.
Point PointOnCircle(uint32_t bits) {
  static constexpr double kSine[] = {1,           -1.0 / 6,      1.0 / 120,
                                     -1.0 / 5040, 1.0 / 362'880, -1.0 / 39'916'800};
  static constexpr double kCosine[] = {
      1, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40'320, -1.0 / 3'628'800, 1.0 / 479'001'600};
  const uint32_t quarters = (bits + (1u << 29)) >> 30;
  const auto from_quarter = static_cast<int32_t>(bits - (quarters << 30));
  const double angle = 2 * std::numbers::pi * 0x1p-32 * from_quarter;
  const double sine = angle * Polynomial(kSine, angle * angle);
  const double cosine = Polynomial(kCosine, angle * angle);
  switch (quarters) {
    case 0:
      return {cosine, sine};
    case 1:
      return {-sine, cosine};
    case 2:
      return {-cosine, -sine};
    default:
      return {sine, -cosine};
  }
}

// Returns two standard normal numbers: the transform of Box and Muller 1958.
std::array<float, 2> BoxMuller(uint32_t radius_bits, uint32_t angle_bits) {
  const double radius = std::sqrt(-2 * Log((radius_bits + 1.0) * 0x1p-32));
  const Point point = PointOnCircle(angle_bits);
  return {static_cast<float>(radius * point.x), static_cast<float>(radius * point.y)};
}

std::array<float, 4> Normals(const std::array<uint32_t, 4>& bits) {
  const auto [a, b] = BoxMuller(bits[0], bits[1]);
  const auto [c, d] = BoxMuller(bits[2], bits[3]);
  return {a, b, c, d};
}

}  // namespace

CounterRandom::CounterRandom(uint64_t seed, absl::string_view stream)
    : CounterRandom(seed, Fnv1a64(stream)) {}

std::array<uint32_t, 4> CounterRandom::Block(uint64_t block) const {
  return PhiloxBlock(seed_, stream_, block);
}

uint32_t CounterRandom::Bits(uint64_t index) const { return Block(index / 4)[index % 4]; }

float CounterRandom::Uniform(uint64_t index) const { return PhiloxUniform(Bits(index)); }

void CounterRandom::FillUniform(uint64_t first, absl::Span<float> out) const {
  std::array<uint32_t, 4> block = Block(first / 4);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = first + i;
    if (index % 4 == 0) block = Block(index / 4);
    out[i] = PhiloxUniform(block[index % 4]);
  }
}

float CounterRandom::Normal(uint64_t index) const {
  const std::array<uint32_t, 4> block = Block(index / 4);
  const int pair = index % 4 & 2;
  return BoxMuller(block[pair], block[pair + 1])[index % 2];
}

void CounterRandom::FillNormal(uint64_t first, absl::Span<float> out) const {
  std::array<float, 4> block = Normals(Block(first / 4));
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = first + i;
    if (index % 4 == 0) block = Normals(Block(index / 4));
    out[i] = block[index % 4];
  }
}

uint64_t CounterRandom::Below(uint64_t index, uint64_t bound) const {
  return Bits(index) * bound >> 32;
}

}  // namespace evenshard
