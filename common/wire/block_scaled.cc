#include "common/wire/block_scaled.h"

#include <bit>

#include "common/base/element_loop.h"
#include "common/wire/non_finite.h"

namespace evenshard {
namespace {

// The loops select values instead of branching, so that the compiler can vectorise them. Those over
// a whole block have a constant length.

#define EVENSHARD_INLINE __attribute__((always_inline)) inline

typedef uint16_t Scale __attribute__((aligned(1), may_alias));  // a bfloat16

constexpr int32_t kMagnitude = 0x7fffffff;
constexpr int32_t kTooLarge = 0x7f000000;  // 2^127, and infinities and NaNs are above it
constexpr int32_t kTooSmall = 0x04000000;  // 2^-119
constexpr uint16_t kNan = 0x7fc0;
constexpr float kRound = 12582912;  // 1.5 * 2^23: added to a small value, it rounds that

// The finaliser "lowbias32" of hash-prospector, which maps counters to bits of which each depends
// on each bit of the counter.
EVENSHARD_INLINE uint32_t RandomBits(uint32_t counter) {
  counter ^= counter >> 16;
  counter *= 0x7feb352d;
  counter ^= counter >> 15;
  counter *= 0x846ca68b;
  return counter ^ counter >> 16;
}

// Returns a multiple of 2^-16 in [0, 1).
EVENSHARD_INLINE float Uniform(uint32_t bits) {
  return static_cast<float>(static_cast<int32_t>(bits >> 16)) * 0x1p-16f;
}

// What the formats differ in. Code returns the code of `value`, whose magnitude is at most
// kLargest, in the low bits. Value returns what a code stands for.
template <int kCodeBits, int64_t kBlockElements>
struct Integers {
  static constexpr int64_t kBlock = kBlockElements;
  static constexpr int kBits = kCodeBits;
  static constexpr int32_t kOffset = 1 << (kBits - 1);
  static constexpr float kLargest = kOffset - 1;

  static EVENSHARD_INLINE int32_t Code(float value) {
    return std::bit_cast<int32_t>(value + kRound);
  }
  static EVENSHARD_INLINE int32_t CodeByChance(float value, uint32_t bits) {
    return static_cast<int32_t>((value + kOffset) + Uniform(bits)) - kOffset;
  }
  static EVENSHARD_INLINE float Value(uint32_t code) {
    constexpr int kShift = 32 - kBits;
    return static_cast<float>(static_cast<int32_t>(code << kShift) >> kShift);
  }
};

struct Powers {
  static constexpr int64_t kBlock = 64;
  static constexpr int kBits = 4;
  static constexpr float kLargest = 1;
  static constexpr uint32_t kBias = 120;      // float32's exponent of 2^(e - 7), less e
  static constexpr float kSmallest = 0x1p-6;  // e = 1

  static EVENSHARD_INLINE int32_t Code(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & kMagnitude;
    const int32_t exponent =
        static_cast<int32_t>(((magnitude + 0x3fffff + ((magnitude >> 23) & 1)) >> 23) - kBias);
    // Between zero and the smallest power the middle is half of it.
    const int32_t rounded = std::bit_cast<float>(magnitude) < kSmallest ? 1 : exponent;
    return Signed(std::bit_cast<float>(magnitude) <= kSmallest / 2 ? 0 : rounded, bits);
  }
  static EVENSHARD_INLINE int32_t CodeByChance(float value, uint32_t random) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & kMagnitude;
    const int32_t exponent = static_cast<int32_t>(((magnitude + (random >> 9)) >> 23) - kBias);
    const int32_t small =
        static_cast<int32_t>(std::bit_cast<float>(magnitude) * (1 / kSmallest) + Uniform(random));
    return Signed(std::bit_cast<float>(magnitude) < kSmallest ? small : exponent, bits);
  }
  static EVENSHARD_INLINE float Value(uint32_t code) {
    const uint32_t exponent = code & 7;
    const uint32_t magnitude = exponent == 0 ? 0 : (exponent + kBias) << 23;
    return std::bit_cast<float>(magnitude | (code & 8) << 28);
  }

 private:
  static EVENSHARD_INLINE int32_t Signed(int32_t exponent, uint32_t bits) {
    return exponent | static_cast<int32_t>(bits >> 31) << 3;
  }
};

// Writes the codes of `n` elements; `code(i)` returns that of element i.
template <typename Format, typename Code>
EVENSHARD_INLINE void Pack(int64_t n, uint8_t* __restrict out, Code code) {
  if constexpr (Format::kBits == 8) {
    // In two steps, because the compiler narrows what it computes in the same loop with more
    // instructions.
    int32_t wide[Format::kBlock];
    for (int64_t i = 0; i < n; ++i) wide[i] = code(i);
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(wide[i]);
  } else {
    const int64_t half = n / 2;
    const int64_t upper = n - half;
    int32_t wide[Format::kBlock / 2];
    for (int64_t i = 0; i < half; ++i) wide[i] = (code(i) & 15) | code(i + upper) << 4;
    for (int64_t i = 0; i < half; ++i) out[i] = static_cast<uint8_t>(wide[i]);
    if (half < upper) out[half] = static_cast<uint8_t>(code(half) & 15);
  }
}

// Returns the bits of the largest magnitude.
EVENSHARD_INLINE int32_t LargestOf(const float* __restrict values, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = std::bit_cast<int32_t>(values[i]) & kMagnitude;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

template <typename Format, bool kByChance>
EVENSHARD_INLINE void EncodeBlock(const float* __restrict values, int64_t n, uint16_t scale,
                                  float inverse, uint32_t counter, char* __restrict out) {
  *reinterpret_cast<Scale*>(out) = scale;
  uint8_t* const codes = reinterpret_cast<uint8_t*>(out + sizeof(Scale));
  if (scale == kNan) {
    Pack<Format>(n, codes, [&](int64_t i) {
      return (std::bit_cast<int32_t>(values[i]) & kMagnitude) >= kTooLarge ? 1 : 0;
    });
    return;
  }
  Pack<Format>(n, codes, [&](int64_t i) {
    const float quotient = values[i] * inverse;
    if constexpr (kByChance) {
      const float upper = quotient < Format::kLargest ? quotient : Format::kLargest;
      const float bounded = upper > -Format::kLargest ? upper : -Format::kLargest;
      return Format::CodeByChance(bounded, RandomBits(counter + static_cast<uint32_t>(i)));
    } else {
      return Format::Code(quotient);
    }
  });
}

template <typename Format>
EVENSHARD_INLINE void DecodeBlock(const char* __restrict encoded, int64_t n,
                                  float* __restrict out) {
  const uint32_t scale_bits = *reinterpret_cast<const Scale*>(encoded);
  const float scale = std::bit_cast<float>(scale_bits << 16);
  const uint8_t* const codes = reinterpret_cast<const uint8_t*>(encoded + sizeof(Scale));
  if constexpr (Format::kBits == 8) {
    for (int64_t i = 0; i < n; ++i) out[i] = Format::Value(codes[i]) * scale;
  } else {
    const int64_t half = n / 2;
    float* const upper = out + (n - half);
    for (int64_t i = 0; i < half; ++i) {
      out[i] = Format::Value(codes[i] & 15) * scale;
      upper[i] = Format::Value(codes[i] >> 4) * scale;
    }
    if (half < n - half) out[half] = Format::Value(codes[half] & 15) * scale;
  }
}

template <typename Format, bool kByChance>
EVENSHARD_INLINE void EncodeBlocks(const float* values, int64_t n, uint32_t counter, char* out) {
  constexpr int64_t kBlock = Format::kBlock;
  // The scales of several blocks are computed at once, so that none waits for its division.
  constexpr int64_t kGroup = 16;
  int32_t largest[kGroup] = {};
  uint16_t scales[kGroup];
  float inverses[kGroup];
  while (n > 0) {
    const int64_t whole = std::min(n / kBlock, kGroup);
    for (int64_t i = 0; i < whole; ++i) largest[i] = LargestOf(values + i * kBlock, kBlock);
    const int64_t rest = whole < kGroup ? n % kBlock : 0;
    if (rest > 0) largest[whole] = LargestOf(values + whole * kBlock, rest);
    for (int64_t i = 0; i < kGroup; ++i) {
      // It is rounded up, so that no quotient exceeds the largest that a code stands for, except
      // for the rounding of the quotient itself.
      const float exact = std::bit_cast<float>(largest[i]) / Format::kLargest;
      const uint32_t rounded = (std::bit_cast<uint32_t>(exact) + 0xffff) & 0xffff0000;
      const bool is_normal = largest[i] >= kTooSmall && largest[i] < kTooLarge;
      const uint32_t other = largest[i] < kTooSmall ? 0 : kNan;
      scales[i] = static_cast<uint16_t>(is_normal ? rounded >> 16 : other);
      inverses[i] = is_normal ? 1 / std::bit_cast<float>(rounded) : 0;
    }
    for (int64_t i = 0; i < whole; ++i) {
      EncodeBlock<Format, kByChance>(values, kBlock, scales[i], inverses[i], counter, out);
      values += kBlock;
      counter += kBlock;
      out += sizeof(Scale) + kBlock * Format::kBits / 8;
    }
    if (rest > 0) {
      EncodeBlock<Format, kByChance>(values, rest, scales[whole], inverses[whole], counter, out);
    }
    n -= whole * kBlock + rest;
  }
}

template <typename Format>
EVENSHARD_INLINE void DecodeBlocks(const char* encoded, int64_t n, float* out) {
  constexpr int64_t kBlock = Format::kBlock;
  for (; n >= kBlock; n -= kBlock) {
    DecodeBlock<Format>(encoded, kBlock, out);
    encoded += sizeof(Scale) + kBlock * Format::kBits / 8;
    out += kBlock;
  }
  if (n > 0) DecodeBlock<Format>(encoded, n, out);
}

// target_clones takes no templates.
#define EVENSHARD_BLOCK_FORMAT(Name, Format)                                               \
  EVENSHARD_VECTORIZED                                                                     \
  void EncodeNearest##Name(const float* values, int64_t n, char* out) {                    \
    EncodeBlocks<Format, false>(values, n, 0, out);                                        \
  }                                                                                        \
  EVENSHARD_VECTORIZED                                                                     \
  void EncodeByChance##Name(const float* values, int64_t n, uint32_t counter, char* out) { \
    EncodeBlocks<Format, true>(values, n, counter, out);                                   \
  }                                                                                        \
  void Encode##Name(const float* values, int64_t n, const Rounding& rounding, char* out) { \
    if (!rounding.is_stochastic) return EncodeNearest##Name(values, n, out);               \
    EncodeByChance##Name(values, n, rounding.key + rounding.first, out);                   \
  }                                                                                        \
  EVENSHARD_VECTORIZED                                                                     \
  void Decode##Name(const char* encoded, int64_t n, float* out) {                          \
    DecodeBlocks<Format>(encoded, n, out);                                                 \
  }

using Integers8 = Integers<8, 256>;
using Integers4 = Integers<4, 64>;
EVENSHARD_BLOCK_FORMAT(Int8, Integers8)
EVENSHARD_BLOCK_FORMAT(Int4, Integers4)
EVENSHARD_BLOCK_FORMAT(E3m0, Powers)

// By how much a scale may exceed its block's largest magnitude, as parts of that.
constexpr double kScaleUp = 1 + 0x1p-7;
// What the float32 arithmetic on quotients adds to half a step of the integers.
constexpr double kInexact = 1 + 0x1p-14;

constexpr BlockScaled kInt8 = {.block = Integers8::kBlock,
                               .bits = Integers8::kBits,
                               .encode = EncodeInt8,
                               .decode = DecodeInt8,
                               .relative_error = 0,
                               .absolute_error = kScaleUp * kInexact / (2 * Integers8::kLargest),
                               .stochastic = 2};
constexpr BlockScaled kInt4 = {.block = Integers4::kBlock,
                               .bits = Integers4::kBits,
                               .encode = EncodeInt4,
                               .decode = DecodeInt4,
                               .relative_error = 0,
                               .absolute_error = kScaleUp * kInexact / (2 * Integers4::kLargest),
                               .stochastic = 2};
constexpr BlockScaled kE3m0 = {.block = Powers::kBlock,
                               .bits = Powers::kBits,
                               .encode = EncodeE3m0,
                               .decode = DecodeE3m0,
                               .relative_error = kInexact / 3,
                               .absolute_error = kScaleUp * kInexact * Powers::kSmallest / 2,
                               .stochastic = 3};

// With a scale below it no code leaves the range of float32.
constexpr uint16_t kLargeScale = 0x7c00;  // 2^121
constexpr uint16_t kNonFiniteScale = 0x7f80;
constexpr uint16_t kOne = 0x3f80;

}  // namespace

uint32_t RoundingKey(uint32_t worker, uint64_t iteration) {
  const uint32_t lower = RandomBits(RandomBits(worker) + static_cast<uint32_t>(iteration));
  return RandomBits(lower + static_cast<uint32_t>(iteration >> 32));
}

const BlockScaled& Int8() { return kInt8; }
const BlockScaled& Int4() { return kInt4; }
const BlockScaled& E3m0() { return kE3m0; }

int64_t FindNonFinite(const BlockScaled& format, const char* encoded, int64_t n) {
  for (int64_t first = 0; first < n; first += format.block, encoded += format.block_bytes()) {
    const uint16_t scale = *reinterpret_cast<const Scale*>(encoded) & 0x7fff;
    if (scale < kLargeScale) continue;
    const int64_t size = std::min(format.block, n - first);
    float values[kMostBlockElements];
    if (scale < kNonFiniteScale) {
      format.decode(encoded, size, values);
      const int64_t found = FindNonFinite(values, size);
      if (found >= 0) return first + found;
      continue;
    }
    char unscaled[kMostBlockBytes];
    std::memcpy(unscaled, encoded, format.Bytes(size));
    *reinterpret_cast<Scale*>(unscaled) = kOne;
    format.decode(unscaled, size, values);
    const float* const found = std::find_if(values, values + size, [](float v) { return v != 0; });
    return found == values + size ? first : first + (found - values);
  }
  return -1;
}

}  // namespace evenshard
