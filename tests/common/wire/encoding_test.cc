#include "common/wire/encoding.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace evenshard {
namespace {

constexpr Encoding kEncodings[] = {FLOAT32, FLOAT16, BFLOAT16, INT8, INT4, E3M0};

std::vector<float> RandomFloats(std::mt19937_64& random, size_t n) {
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

std::string Encoded(Encoding encoding, const std::vector<float>& values) {
  std::string bytes(EncodedBytes(encoding, values.size()), '\0');
  Encode(encoding, values, bytes.data());
  return bytes;
}

// Cuts `bytes` into pieces of random length, some of them empty, at any byte of an element.
Segments Cut(const std::string& bytes, std::mt19937_64& random) {
  const size_t largest = 1 + random() % 9000;
  Segments segments;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t length = std::min<size_t>(random() % (largest + 1), bytes.size() - begin);
    segments.emplace_back(bytes.data() + begin, length);
    begin += length;
  }
  return segments;
}

TEST_CASE("what was encoded is decoded from pieces of any length, whole and in runs") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 600; ++round) {
    const Encoding encoding = kEncodings[round % 6];
    const std::vector<float> values = RandomFloats(random, random() % 6000);
    const std::string bytes = Encoded(encoding, values);
    CAPTURE(EncodingName(encoding), values.size());
    std::vector<float> expected = values;
    if (const HalfWidth* half = HalfWidthOf(encoding)) {
      half->decode(reinterpret_cast<const UnalignedHalf*>(bytes.data()),
                   static_cast<int64_t>(values.size()), expected.data());
    } else if (const BlockScaled* blocks = BlockScaledOf(encoding)) {
      blocks->decode(bytes.data(), static_cast<int64_t>(values.size()), expected.data());
    }

    std::vector<float> decoded(values.size());
    Decode(encoding, Cut(bytes, random), absl::MakeSpan(decoded));
    REQUIRE(decoded == expected);

    std::vector<float> in_runs;
    ForEachDecodedRun(encoding, Cut(bytes, random), static_cast<int64_t>(values.size()),
                      [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                        REQUIRE(first == static_cast<int64_t>(in_runs.size()));
                        for (int64_t i = 0; i < count; ++i) in_runs.push_back(float{floats[i]});
                      });
    REQUIRE(in_runs == expected);
  }
}

TEST_CASE("the first value that is not finite is found in any pieces") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 600; ++round) {
    const Encoding encoding = kEncodings[round % 6];
    std::vector<float> values = RandomFloats(random, 1 + random() % 6000);
    CAPTURE(EncodingName(encoding));
    const std::string finite = Encoded(encoding, values);
    const auto n = static_cast<int64_t>(values.size());
    REQUIRE(FindNonFinite(encoding, Cut(finite, random), n) == -1);
    const size_t first = random() % values.size();
    values[first] = values.back() = round % 2 == 0 ? std::nanf("") : HUGE_VALF;
    const std::string bytes = Encoded(encoding, values);
    REQUIRE(FindNonFinite(encoding, Cut(bytes, random), n) == static_cast<int64_t>(first));
  }
}

TEST_CASE("a value beyond the range of an encoding is noticed wherever it is") {
  for (const size_t place : {0, 2047, 2048, 4999}) {
    CAPTURE(place);
    std::vector<float> values(5000, 65519);
    CHECK(FitsEncoding(FLOAT16, values));
    values[place] = -65520;
    CHECK_FALSE(FitsEncoding(FLOAT16, values));
    CHECK(FitsEncoding(BFLOAT16, values));
    values[place] = 3.4e38f;
    CHECK_FALSE(FitsEncoding(BFLOAT16, values));
    CHECK(FitsEncoding(FLOAT32, values));
    for (const Encoding encoding : {INT8, INT4, E3M0}) {
      values[place] = 1.7e38f;
      CHECK(FitsEncoding(encoding, values));
      values[place] = 1.8e38f;
      CHECK_FALSE(FitsEncoding(encoding, values));
    }
  }
}

TEST_CASE("a sum of encoded gradients is off by no more than their rounding and float32's own") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (const Encoding encoding : {FLOAT16, BFLOAT16}) {
    const HalfWidth& half = *HalfWidthOf(encoding);
    for (const int workers : {1, 2, 8, 64}) {
      CAPTURE(EncodingName(encoding), workers);
      constexpr size_t kSize = 3000;
      std::vector<float> sum(kSize);
      std::vector<double> exact(kSize), magnitudes(kSize);
      for (int worker = 0; worker < workers; ++worker) {
        std::vector<float> gradient = RandomFloats(random, kSize);
        // Some values become so small that they are subnormal in float16.
        for (size_t i = 0; i < kSize; ++i) gradient[i] *= std::exp2(-static_cast<int>(i % 24));
        const std::string bytes = Encoded(encoding, gradient);
        ForEachDecodedRun(encoding, Cut(bytes, random), kSize,
                          [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
                            for (int64_t i = 0; i < count; ++i) sum[first + i] += floats[i];
                          });
        for (size_t i = 0; i < kSize; ++i) {
          exact[i] += gradient[i];
          magnitudes[i] += std::abs(gradient[i]);
        }
      }
      for (size_t i = 0; i < kSize; ++i) {
        const double rounding = half.relative_error * magnitudes[i] + workers * half.absolute_error;
        const double adding = (workers - 1) * 0x1p-24 * (magnitudes[i] + rounding) * 1.001;
        CAPTURE(i, exact[i], sum[i]);
        REQUIRE(std::abs(sum[i] - exact[i]) <= rounding + adding);
      }
    }
  }
}

TEST_CASE("an encoding is named, one that this program does not know by its number") {
  CHECK(EncodingName(FLOAT16) == "FLOAT16");
  CHECK(EncodingName(17) == "encoding 17");
  CHECK(EncodingNames([](Encoding encoding) { return encoding != FLOAT16; }) ==
        "FLOAT32, BFLOAT16, INT8, INT4, E3M0");
  CHECK(RangeOf(FLOAT32).empty());
  CHECK(RangeOf(FLOAT16) == " (or beyond 65504, the largest FLOAT16)");
  CHECK(RangeOf(BFLOAT16) == " (or beyond 3.38953e+38, the largest BFLOAT16)");
  CHECK(RangeOf(INT4) == " (or beyond 1.70141e+38, the largest INT4)");
  CHECK(std::isinf(OverflowsFrom(FLOAT32)));
  CHECK(OverflowsFrom(FLOAT16) == 65520);
  for (const Encoding encoding : {FLOAT16, BFLOAT16, INT8, INT4, E3M0}) {
    const float limit = OverflowsFrom(encoding);
    const float least[] = {limit}, below[] = {std::nextafter(-limit, 0.0f)};
    CHECK_FALSE(FitsEncoding(encoding, least));
    CHECK(FitsEncoding(encoding, below));
  }
}

TEST_CASE("the size of encoded elements counts the scales of their blocks") {
  CHECK(EncodedBytes(FLOAT32, 100) == 400);
  CHECK(EncodedBytes(FLOAT16, 100) == 200);
  CHECK(EncodedBytes(INT8, 300) == 256 + 44 + 2 * 2);
  CHECK(EncodedBytes(INT4, 101) == 32 + 19 + 2 * 2);
  CHECK(EncodedBytes(E3M0, 64) == 34);
}

}  // namespace
}  // namespace evenshard
