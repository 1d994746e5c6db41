#include "common/wire/half_width.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace evenshard {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  std::string name;
  const HalfWidth* half;
  int precision;       // bits of the significand, including the hidden one
  int least_exponent;  // exponent of the smallest normal value
};

std::vector<Format> Formats() {
  return {{"float16", &Float16(), 11, -14},
          {"float16 without the processor's help", &PortableFloat16(), 11, -14},
          {"bfloat16", &Bfloat16(), 8, -126}};
}

uint16_t Encoded(const HalfWidth& half, float value) {
  uint16_t encoded = 0;
  half.encode(&value, 1, &encoded);
  return encoded;
}

float Decoded(const HalfWidth& half, uint16_t encoded) {
  float value = 0;
  half.decode(&encoded, 1, &value);
  return value;
}

// Returns all 65536 encoded values. Converting them in one call uses the vectorised loop.
std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

std::vector<float> DecodedAll(const HalfWidth& half) {
  const std::vector<uint16_t> all = AllHalves();
  std::vector<float> values(all.size());
  half.decode(all.data(), static_cast<int64_t>(all.size()), values.data());
  return values;
}

// Returns the value of encoded bits by the definition of the format.
double Meaning(const Format& format, uint16_t bits) {
  const int fraction_bits = format.precision - 1;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const int exponent = (bits & 0x7fff) >> fraction_bits;
  const double magnitude = exponent == 0
                               ? std::ldexp(fraction, format.least_exponent - fraction_bits)
                               : std::ldexp((1 << fraction_bits) + fraction,
                                            format.least_exponent - fraction_bits + exponent - 1);
  return bits & 0x8000 ? -magnitude : magnitude;
}

bool IsFinite(const HalfWidth& half, uint16_t bits) {
  return (bits & half.exponent_bits) != half.exponent_bits;
}

// Returns floats with random bits, which include subnormals, infinities and NaNs.
std::vector<float> RandomFloats(std::mt19937_64& random, size_t n) {
  std::vector<float> values(n);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return values;
}

TEST_CASE("each of the 65536 half-width values is decoded to what its bits mean") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    const std::vector<float> values = DecodedAll(*format.half);
    for (const uint16_t bits : AllHalves()) {
      const float value = values[bits];
      CAPTURE(bits, value);
      if (IsFinite(*format.half, bits)) {
        REQUIRE(value == Meaning(format, bits));
        REQUIRE(std::signbit(value) == ((bits & 0x8000) != 0));
      } else if ((bits & ~format.half->exponent_bits & 0x7fff) == 0) {
        REQUIRE(value == (bits & 0x8000 ? -kInfinity : kInfinity));
      } else {
        REQUIRE(std::isnan(value));
      }
    }
  }
}

TEST_CASE("decoding and encoding again gives the same bits, and a NaN for a NaN") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    const std::vector<float> values = DecodedAll(*format.half);
    std::vector<uint16_t> again(values.size());
    format.half->encode(values.data(), static_cast<int64_t>(values.size()), again.data());
    for (const uint16_t bits : AllHalves()) {
      CAPTURE(bits);
      if (!std::isnan(values[bits])) {
        REQUIRE(again[bits] == bits);
      } else {
        REQUIRE(std::isnan(Decoded(*format.half, again[bits])));
        REQUIRE((again[bits] & 0x8000) == (bits & 0x8000));
      }
    }
  }
}

TEST_CASE("encoding rounds to nearest and ties to even, between all neighbours, to infinity too") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    // Rounding is monotonic, so it is enough to test around the middle between neighbours.
    for (uint16_t lower = 0; IsFinite(*format.half, lower); ++lower) {
      const uint16_t upper = lower + 1;
      // The middle between two neighbours is exact in float32, also where it is subnormal.
      const double above = IsFinite(*format.half, upper)
                               ? Meaning(format, upper)
                               : 2 * Meaning(format, lower) - Meaning(format, lower - 1);
      const double exact_middle = (Meaning(format, lower) + above) / 2;
      const float middle = static_cast<float>(exact_middle);
      REQUIRE(middle == exact_middle);
      CAPTURE(lower, middle);
      REQUIRE(Encoded(*format.half, middle) == (lower % 2 == 0 ? lower : upper));
      REQUIRE(Encoded(*format.half, std::nextafter(middle, 0.0f)) == lower);
      REQUIRE(Encoded(*format.half, std::nextafter(middle, kInfinity)) == upper);
      REQUIRE(Encoded(*format.half, -middle) == ((lower % 2 == 0 ? lower : upper) | 0x8000));
    }
    REQUIRE(Encoded(*format.half, kInfinity) == format.half->exponent_bits);
    REQUIRE(Encoded(*format.half, -kInfinity) == (format.half->exponent_bits | 0x8000));
    REQUIRE(std::isnan(Decoded(*format.half, Encoded(*format.half, std::nanf("")))));
  }
  CHECK(Decoded(Float16(), Encoded(Float16(), 65519.996f)) == 65504);
  CHECK(Decoded(Float16(), Encoded(Float16(), 65520)) == kInfinity);
}

TEST_CASE("an encoded value is off by no more than the bounds, which are reached") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    const HalfWidth& half = *format.half;
    CHECK(half.relative_error == std::ldexp(1, -format.precision));
    CHECK(half.absolute_error == std::ldexp(1, format.least_exponent - format.precision));
    const double smallest_normal = std::ldexp(1, format.least_exponent);
    const double largest = Meaning(format, half.exponent_bits - 1);
    double worst_relative = 0, worst_absolute = 0;
    std::uniform_real_distribution<double> exponent(-30, 18);
    for (int i = 0; i < 200'000; ++i) {
      // Half of the values cover the range of float16, the others the lower end of the format's.
      const double shift = i % 2 == 0 ? 0 : format.least_exponent + 14;
      const double sign = random() % 2 == 0 ? 1 : -1;
      const float value = static_cast<float>(sign * std::exp2(exponent(random) + shift));
      if (std::abs(value) > largest) continue;
      const double error = std::abs(double{value} - Decoded(half, Encoded(half, value)));
      CAPTURE(value);
      if (std::abs(value) >= smallest_normal) {
        REQUIRE(error <= half.relative_error * std::abs(value));
        worst_relative = std::max(worst_relative, error / std::abs(value));
      } else {
        REQUIRE(error <= half.absolute_error);
        worst_absolute = std::max(worst_absolute, error);
      }
    }
    CHECK(worst_relative > 0.9 * half.relative_error);
    CHECK(worst_absolute > 0.9 * half.absolute_error);
  }
}

TEST_CASE("float16 has the same bits with the processor's instructions and without") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const std::vector<float> values = RandomFloats(random, 1'000'003);
  const auto n = static_cast<int64_t>(values.size());
  std::vector<uint16_t> own(values.size()), portable(values.size());
  Float16().encode(values.data(), n, own.data());
  PortableFloat16().encode(values.data(), n, portable.data());
  CHECK(own == portable);
  for (const uint16_t bits : AllHalves()) {
    // Bits are compared, because NaNs are not equal.
    REQUIRE(std::bit_cast<uint32_t>(Decoded(Float16(), bits)) ==
            std::bit_cast<uint32_t>(Decoded(PortableFloat16(), bits)));
  }
}

TEST_CASE("any number of values at any address is converted one by one, and nothing else") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Format& format : Formats()) {
    for (const size_t n : {0, 1, 7, 8, 9, 31, 64, 1000}) {
      for (const size_t shift : {0, 1, 3}) {
        CAPTURE(format.name, n, shift);
        const std::vector<float> values = RandomFloats(random, n);
        std::string bytes(shift + 2 * n + 1, '#');
        UnalignedHalf* const encoded = reinterpret_cast<UnalignedHalf*>(bytes.data() + shift);
        format.half->encode(values.data(), static_cast<int64_t>(n), encoded);
        CHECK(bytes.back() == '#');
        CHECK(bytes.substr(0, shift) == std::string(shift, '#'));
        std::vector<float> decoded(n + 1, 42);
        format.half->decode(encoded, static_cast<int64_t>(n), decoded.data());
        CHECK(decoded.back() == 42);
        for (size_t i = 0; i < n; ++i) {
          const uint16_t bits = encoded[i];  // a copy, because a reference would be unaligned
          REQUIRE(bits == Encoded(*format.half, values[i]));
          REQUIRE(std::bit_cast<uint32_t>(decoded[i]) ==
                  std::bit_cast<uint32_t>(Decoded(*format.half, bits)));
        }
      }
    }
  }
}

}  // namespace
}  // namespace evenshard
