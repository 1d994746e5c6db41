#include "common/wire/half_width.h"

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <bit>

#include "common/base/element_loop.h"

namespace evenshard {
namespace {

// The loops select values instead of branching, so that the compiler can vectorise them.

constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;  // in float32
constexpr uint32_t kQuiet = 0x00400000;

constexpr int kDroppedBits = 13;                         // fraction bits that binary16 lacks
constexpr uint32_t kBias = uint32_t{127 - 15} << 23;     // difference of the exponent biases
constexpr uint32_t kSmallestNormal = kBias + (1 << 23);  // 2^-14
constexpr uint32_t kBeyondRange = kBias + (uint32_t{31} << 23);  // 2^16

EVENSHARD_VECTORIZED
void EncodeFloat16(const float* __restrict values, int64_t n, UnalignedHalf* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t magnitude = bits & ~kSign;
    // Rounding up may carry from the fraction into the exponent. The result is right, also where
    // it is infinity.
    const uint32_t odd = (magnitude >> kDroppedBits) & 1;
    const uint32_t normal =
        (magnitude - kBias + ((1 << (kDroppedBits - 1)) - 1) + odd) >> kDroppedBits;
    // The last bit of a float32 near 0.5 has the weight of binary16's smallest value, so this
    // addition rounds to a multiple of it.
    const uint32_t subnormal =
        std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    const uint32_t nan = 0x7e00 | ((magnitude & ~kInfinity) >> kDroppedBits);
    const uint32_t special = magnitude > kInfinity ? nan : 0x7c00;
    uint32_t encoded = magnitude < kSmallestNormal ? subnormal : normal;
    encoded = magnitude >= kBeyondRange ? special : encoded;
    out[i] = static_cast<uint16_t>(encoded | (bits & kSign) >> 16);
  }
}

EVENSHARD_VECTORIZED
void DecodeFloat16(const UnalignedHalf* __restrict encoded, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = encoded[i];
    const uint32_t shifted = (bits & 0x7fff) << kDroppedBits;
    const uint32_t normal = shifted + kBias;
    // A subnormal value is read with the exponent of 2^-14, which adds 2^-14; subtract it again.
    const float subnormal =
        std::bit_cast<float>(shifted + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal);
    const uint32_t quiet = (bits & 0x3ff) != 0 ? kQuiet : 0;
    const uint32_t special = shifted | kInfinity | quiet;
    uint32_t decoded = (bits & 0x7c00) == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
    decoded = (bits & 0x7c00) == 0x7c00 ? special : decoded;
    out[i] = std::bit_cast<float>(decoded | (bits & 0x8000) << 16);
  }
}

constexpr HalfWidth kPortableFloat16 = {EncodeFloat16, DecodeFloat16, 0x7c00, 0x1p-11, 0x1p-25};

#ifdef __x86_64__

// Conversion to and from binary16 takes several times as long without these instructions.
#define EVENSHARD_F16C __attribute__((target("avx,f16c")))

EVENSHARD_F16C
void EncodeFloat16Natively(const float* values, int64_t n, UnalignedHalf* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i encoded = _mm256_cvtps_ph(_mm256_loadu_ps(values + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), encoded);
  }
  EncodeFloat16(values + i, n - i, out + i);
}

EVENSHARD_F16C
void DecodeFloat16Natively(const UnalignedHalf* encoded, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(encoded + i));
    _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
  }
  DecodeFloat16(encoded + i, n - i, out + i);
}

// The check for "avx" includes that the operating system saves the AVX registers.
bool HasF16c() {
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
         (ecx & bit_F16C) != 0;
}

HalfWidth BestFloat16() {
  HalfWidth best = kPortableFloat16;
  if (HasF16c()) {
    best.encode = EncodeFloat16Natively;
    best.decode = DecodeFloat16Natively;
  }
  return best;
}

#else

HalfWidth BestFloat16() { return kPortableFloat16; }

#endif

EVENSHARD_VECTORIZED
void EncodeBfloat16(const float* __restrict values, int64_t n, UnalignedHalf* __restrict out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
    const uint32_t encoded = (bits & ~kSign) > kInfinity ? bits | kQuiet : rounded;
    out[i] = static_cast<uint16_t>(encoded >> 16);
  }
}

EVENSHARD_VECTORIZED
void DecodeBfloat16(const UnalignedHalf* __restrict encoded, int64_t n, float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(uint32_t{encoded[i]} << 16);
}

constexpr HalfWidth kBfloat16 = {EncodeBfloat16, DecodeBfloat16, 0x7f80, 0x1p-8, 0x1p-134};

}  // namespace

const HalfWidth& PortableFloat16() { return kPortableFloat16; }

const HalfWidth& Float16() {
  static const HalfWidth best = BestFloat16();
  return best;
}

const HalfWidth& Bfloat16() { return kBfloat16; }

}  // namespace evenshard
