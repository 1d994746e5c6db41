#include "common/wire/block_scaled.h"

#include <algorithm>
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
  const BlockScaled* blocks;
};

std::vector<Format> Formats() { return {{"INT8", &Int8()}, {"INT4", &Int4()}, {"E3M0", &E3m0()}}; }

std::string Encoded(const BlockScaled& format, const std::vector<float>& values,
                    const Rounding& rounding = {}) {
  std::string bytes(format.Bytes(static_cast<int64_t>(values.size())), '#');
  format.encode(values.data(), static_cast<int64_t>(values.size()), rounding, bytes.data());
  return bytes;
}

std::vector<float> Decoded(const BlockScaled& format, const std::string& bytes, size_t n) {
  std::vector<float> values(n);
  format.decode(bytes.data(), static_cast<int64_t>(n), values.data());
  return values;
}

uint16_t ScaleOf(const std::string& block) {
  return static_cast<uint16_t>(static_cast<uint8_t>(block[0]) | static_cast<uint8_t>(block[1])
                                                                    << 8);
}

// Returns the code of an element of a block of `n` elements, as docs/protocol.md says.
int CodeOf(const BlockScaled& format, const std::string& block, int64_t n, int64_t i) {
  if (format.bits == 8) return static_cast<uint8_t>(block[2 + i]);
  const int64_t lower = (n + 1) / 2;
  const int byte = static_cast<uint8_t>(block[2 + (i < lower ? i : i - lower)]);
  return i < lower ? byte & 15 : byte >> 4;
}

// Returns what a code means by the definition of the format.
double Meaning(const Format& format, int code) {
  if (format.name == "INT8") return code < 128 ? code : code - 256;
  if (format.name == "INT4") return code < 8 ? code : code - 16;
  const double magnitude = code % 8 == 0 ? 0 : std::exp2(code % 8 - 7);
  return code < 8 ? magnitude : -magnitude;
}

std::vector<float> RandomFloats(std::mt19937_64& random, size_t n, float size = 1) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = size * normal(random);
  return values;
}

double LargestOf(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(double{value}));
  return largest;
}

TEST_CASE("a code is decoded to what it means, times the scale, without a rounding error") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    const int codes = 1 << format.blocks->bits;
    for (const int scale : {0x3f80, 0x3f81, 0x4049, 0x0400, 0x7bff, 0xbf80, 0x0000}) {
      const double factor = std::bit_cast<float>(uint32_t(scale) << 16);
      for (int code = 0; code < codes; ++code) {
        std::string block = {static_cast<char>(scale), static_cast<char>(scale >> 8),
                             static_cast<char>(code)};
        CAPTURE(scale, code);
        REQUIRE(Decoded(*format.blocks, block, 1)[0] == Meaning(format, code) * factor);
      }
    }
  }
}

TEST_CASE("the bytes of a block are its scale and then the codes, in halves of it with 4 bits") {
  for (const Format& format : Formats()) {
    const BlockScaled& blocks = *format.blocks;
    for (int64_t n = 1; n <= blocks.block; ++n) {
      CAPTURE(format.name, n);
      std::vector<float> values(n);
      for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 2 == 0 ? i + 1 : -i);
      const std::string bytes = Encoded(blocks, values);
      REQUIRE(bytes.size() == 2 + static_cast<size_t>((n * blocks.bits + 7) / 8));
      const std::vector<float> decoded = Decoded(blocks, bytes, values.size());
      const double scale = std::bit_cast<float>(uint32_t{ScaleOf(bytes)} << 16);
      for (int64_t i = 0; i < n; ++i) {
        REQUIRE(decoded[i] == scale * Meaning(format, CodeOf(blocks, bytes, n, i)));
      }
      if (blocks.bits == 4 && n % 2 == 1) REQUIRE(CodeOf(blocks, bytes, n + 1, n) == 0);
    }
  }
  CHECK(Int8().Bytes(256) == 258);
  CHECK(Int4().Bytes(64) == 34);
  CHECK(Int4().Bytes(65) == 34 + 3);
  CHECK(E3m0().Bytes(64 * 3 + 63) == 34 * 4);
  CHECK(Int8().Bytes(0) == 0);
}

TEST_CASE("the scale is the largest magnitude over the largest code, as a bfloat16 rounded up") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Format& format : Formats()) {
    const double most = format.name == "INT8" ? 127 : format.name == "INT4" ? 7 : 1;
    for (int round = 0; round < 200; ++round) {
      const std::vector<float> values = RandomFloats(random, 1 + random() % format.blocks->block,
                                                     std::exp2(random() % 200 - 100.0f));
      const uint16_t bits = ScaleOf(Encoded(*format.blocks, values));
      const float scale = std::bit_cast<float>(uint32_t{bits} << 16);
      const float exact = static_cast<float>(LargestOf(values)) / static_cast<float>(most);
      CAPTURE(format.name, exact, scale);
      REQUIRE(scale >= exact);
      REQUIRE(std::bit_cast<float>((uint32_t{bits} - 1) << 16) < exact);
    }
  }
}

TEST_CASE("rounding to nearest is off by no more than the bounds, which are reached") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Format& format : Formats()) {
    const BlockScaled& blocks = *format.blocks;
    double worst_relative = 0, worst_absolute = 0;
    for (int round = 0; round < 1000; ++round) {
      std::vector<float> values(blocks.block);
      for (float& value : values) {
        value = static_cast<float>(random() % 2 == 0 ? 1 : -1) *
                std::exp2(-static_cast<float>(random() % 900'000) / 100'000);
      }
      // The largest is just above a scale that is as coarse as one can be.
      values[random() % blocks.block] = blocks.bits == 8 ? 127.02f / 128
                                        : blocks.block == 64 && format.name == "INT4" ? 7.002f / 8
                                                                                      : 1.0001f;
      const double largest = LargestOf(values);
      const std::vector<float> decoded = Decoded(blocks, Encoded(blocks, values), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const double x = std::abs(double{values[i]});
        const double error = std::abs(double{values[i]} - decoded[i]);
        CAPTURE(format.name, values[i], decoded[i], largest);
        REQUIRE(error <= std::max(blocks.relative_error * x, blocks.absolute_error * largest));
        if (blocks.relative_error * x > blocks.absolute_error * largest) {
          worst_relative = std::max(worst_relative, error / x);
        } else {
          worst_absolute = std::max(worst_absolute, error / largest);
        }
      }
    }
    CAPTURE(format.name, worst_relative, worst_absolute);
    CHECK(worst_relative >= 0.98 * blocks.relative_error);
    CHECK(worst_absolute >= 0.98 * blocks.absolute_error);
  }
  // docs/protocol.md has them, rounded up.
  const auto rounds_up = [](double bound, double in_docs) {
    return bound <= in_docs && bound > 0.999 * in_docs;
  };
  CHECK(rounds_up(Int8().absolute_error, 0.003969));
  CHECK(rounds_up(Int4().absolute_error, 0.07200));
  CHECK(rounds_up(E3m0().relative_error, 1.0001 / 3));
  CHECK(rounds_up(E3m0().absolute_error, 0.007875));
}

TEST_CASE("ties go to the even code") {
  // The scale is 1 in each block, which its first element sees to.
  const std::vector<float> integers = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 0.49999f};
  const std::vector<float> rounded = {0, 2, 2, 0, -2, -2, 0};
  for (const auto& [blocks, most] : {std::pair(&Int8(), 127.0f), std::pair(&Int4(), 7.0f)}) {
    std::vector<float> values = integers;
    values.push_back(most);
    std::vector<float> expected = rounded;
    expected.push_back(most);
    CHECK(Decoded(*blocks, Encoded(*blocks, values), values.size()) == expected);
  }
  // Exponents 7, 6, 2, 1 and zero; the middle is between two powers, or half of the smallest.
  const std::vector<float> powers = {1,         0.75f,     0.7499f, 0.375f,     -0.375f,
                                     0x1.8p-5f, 0x1.8p-6f, 0x1p-7f, 0x1.01p-7f, -0x1p-7f};
  CHECK(Decoded(E3m0(), Encoded(E3m0(), powers), powers.size()) ==
        std::vector<float>{1, 0.5f, 0.5f, 0.5f, -0.5f, 0x1p-5f, 0x1p-5f, 0, 0x1p-6f, 0});
}

TEST_CASE("a block without a magnitude of 2^-119 is zeros") {
  for (const Format& format : Formats()) {
    CAPTURE(format.name);
    const BlockScaled& blocks = *format.blocks;
    const float below = std::nextafter(0x1p-119f, 0.0f);
    for (const float value : {0.0f, -0.0f, 1e-45f, below}) {
      for (const Rounding& rounding : {Rounding(), Rounding{.is_stochastic = true, .key = 5}}) {
        const std::string bytes = Encoded(blocks, {value, 0, -value}, rounding);
        std::string magnitudes = bytes;
        // E3M0 keeps the sign of a zero.
        if (format.name == "E3M0")
          for (char& byte : magnitudes) byte &= 0x77;
        CHECK(magnitudes == std::string(bytes.size(), '\0'));
      }
    }
    const std::vector<float> least = {0x1p-119f, 0, -0x1p-119f};
    const std::vector<float> decoded = Decoded(blocks, Encoded(blocks, least), 3);
    CHECK(decoded[0] == Approx(0x1p-119).epsilon(0.01));
    CHECK(decoded[2] == -decoded[0]);
  }
}

TEST_CASE("a block with a value that it cannot represent is NaNs, and says where it was") {
  for (const Format& format : Formats()) {
    const BlockScaled& blocks = *format.blocks;
    for (const float bad : {kInfinity, -kInfinity, std::nanf(""), -std::nanf(""), 0x1p127f,
                            -std::numeric_limits<float>::max()}) {
      for (const int64_t place :
           {int64_t{0}, int64_t{7}, blocks.block - 1, blocks.block, 2 * blocks.block + 4}) {
        CAPTURE(format.name, bad, place);
        std::vector<float> values(2 * blocks.block + 5, 0.25f);
        values[place] = bad;
        const std::string bytes = Encoded(blocks, values);
        const auto n = static_cast<int64_t>(values.size());
        REQUIRE(FindNonFinite(blocks, bytes.data(), n) == place);
        const int64_t begin = place / blocks.block * blocks.block;
        const int64_t size = std::min(blocks.block, n - begin);
        const std::string block = bytes.substr(blocks.Bytes(begin), blocks.Bytes(size));
        REQUIRE(ScaleOf(block) == 0x7fc0);
        const std::vector<float> decoded = Decoded(blocks, bytes, values.size());
        for (int64_t i = 0; i < n; ++i) {
          REQUIRE(std::isnan(decoded[i]) == (i >= begin && i < begin + size));
        }
        for (int64_t i = 0; i < size; ++i) {
          REQUIRE(CodeOf(blocks, block, size, i) == (begin + i == place ? 1 : 0));
        }
      }
    }
    const std::vector<float> largest(blocks.block, std::nextafter(0x1p127f, 0.0f));
    const std::string bytes = Encoded(blocks, largest);
    CHECK(FindNonFinite(blocks, bytes.data(), blocks.block) == -1);
    CHECK(std::isfinite(Decoded(blocks, bytes, largest.size())[0]));
  }
}

TEST_CASE("stochastic rounding is exact in the mean, and off by no more than its bound") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  constexpr int kKeys = 400;
  for (const Format& format : Formats()) {
    const BlockScaled& blocks = *format.blocks;
    std::vector<float> values = RandomFloats(random, blocks.block);
    values[0] = 0;
    const double largest = LargestOf(values);
    std::vector<double> sums(values.size());
    for (int key = 0; key < kKeys; ++key) {
      const Rounding rounding = {true, RoundingKey(3, key), /*first=*/77};
      const std::vector<float> decoded =
          Decoded(blocks, Encoded(blocks, values, rounding), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const double x = std::abs(double{values[i]});
        const double bound = blocks.stochastic *
                             std::max(blocks.relative_error * x, blocks.absolute_error * largest);
        CAPTURE(format.name, values[i], decoded[i]);
        REQUIRE(std::abs(double{values[i]} - decoded[i]) <= bound);
        sums[i] += decoded[i];
      }
    }
    for (size_t i = 0; i < values.size(); ++i) {
      const double x = std::abs(double{values[i]});
      const double step =
          blocks.stochastic * std::max(blocks.relative_error * x, blocks.absolute_error * largest);
      CAPTURE(format.name, i, values[i]);
      // Six standard deviations of the mean of numbers that are a step apart at most.
      REQUIRE(std::abs(sums[i] / kKeys - values[i]) <= 6 * step / 2 / std::sqrt(kKeys));
    }
    CHECK(sums[0] == 0);
  }
}

TEST_CASE("the random number of an element is its own, wherever an encoded run begins") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Format& format : Formats()) {
    const BlockScaled& blocks = *format.blocks;
    const std::vector<float> values = RandomFloats(random, 5 * blocks.block + 3);
    const auto encoded = [&](uint32_t key, uint32_t first) {
      return Encoded(blocks, values, {true, key, first});
    };
    // The counter goes on from 2^32 - 1 to 0.
    const uint32_t first = -2 * static_cast<uint32_t>(blocks.block) - 5;
    const std::string whole = encoded(9, first);
    const std::vector<float> rest(values.begin() + 3 * blocks.block, values.end());
    CHECK(Encoded(blocks, rest, {true, 9, first + 3 * static_cast<uint32_t>(blocks.block)}) ==
          whole.substr(blocks.Bytes(3 * blocks.block)));
    CHECK(encoded(9, first) == whole);
    CHECK(encoded(10, first) != whole);
    CHECK(encoded(9, first + 1) != whole);
  }
  CHECK(RoundingKey(0, 5) != RoundingKey(1, 5));
  CHECK(RoundingKey(0, 5) != RoundingKey(0, 6));
  CHECK(RoundingKey(0, 5) != RoundingKey(0, 5 + (uint64_t{1} << 32)));
}

TEST_CASE("blocks do not depend on those around them, and nothing else is written") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Format& format : Formats()) {
    const BlockScaled& blocks = *format.blocks;
    for (const int64_t n : {0, 1, 2, 63, 64, 65, 255, 257, 64 * 16, 64 * 17 + 1, 256 * 35 + 9}) {
      for (const size_t shift : {0, 1, 3}) {
        CAPTURE(format.name, n, shift);
        const std::vector<float> values = RandomFloats(random, n);
        const size_t size = blocks.Bytes(n);
        std::string bytes(shift + size + 1, '#');
        blocks.encode(values.data(), n, {}, bytes.data() + shift);
        REQUIRE(bytes.back() == '#');
        std::string apart;
        for (int64_t begin = 0; begin < n; begin += blocks.block) {
          const int64_t end = std::min(n, begin + blocks.block);
          apart += Encoded(blocks, {values.begin() + begin, values.begin() + end});
        }
        REQUIRE(bytes.substr(shift, size) == apart);
        std::vector<float> decoded(n + 1, 42);
        blocks.decode(bytes.data() + shift, n, decoded.data());
        REQUIRE(decoded.back() == 42);
        decoded.pop_back();
        REQUIRE(decoded == Decoded(blocks, apart, n));
      }
    }
  }
}

TEST_CASE("any bytes of the right length are decoded, and what is not finite is found") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    const Format format = Formats()[round % 3];
    const BlockScaled& blocks = *format.blocks;
    const auto n = static_cast<int64_t>(1 + random() % (3 * blocks.block));
    std::string bytes(blocks.Bytes(n), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    for (int64_t begin = 0; begin < n; begin += blocks.block) {
      // Half of the scales are near the end of float32's range or beyond it.
      if (random() % 2 == 0)
        bytes[blocks.Bytes(begin) + 1] = static_cast<char>(0x7b + random() % 5);
    }
    const std::vector<float> decoded = Decoded(blocks, bytes, n);
    const auto bad = std::find_if(decoded.begin(), decoded.end(),
                                  [](float value) { return !std::isfinite(value); });
    const int64_t found = FindNonFinite(blocks, bytes.data(), n);
    CAPTURE(format.name, n, found);
    if (bad == decoded.end()) {
      REQUIRE(found == -1);
      continue;
    }
    // It is in the same block as the first one, and not finite itself.
    REQUIRE(found >= 0);
    REQUIRE(found < n);
    REQUIRE(found / blocks.block == (bad - decoded.begin()) / blocks.block);
    REQUIRE_FALSE(std::isfinite(decoded[found]));
  }
}

}  // namespace
}  // namespace evenshard
