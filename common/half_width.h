#ifndef PS_COMMON_HALF_WIDTH_H_
#define PS_COMMON_HALF_WIDTH_H_

#include <cstdint>

#include "common/unaligned.h"

// Conversions between float32 and the two 16-bit formats, vectorised. Every processor gives
// the same bits, with instructions of its own for binary16 or without.

namespace ps {

// A 16-bit format. Thread-safe.
//
// Encoding rounds to nearest, ties to even; what is beyond the largest finite value by half
// a unit of its last place or more becomes an infinity. A NaN becomes a quiet NaN with its
// sign and the upper bits of its payload. Decoding is exact; a NaN stays a NaN.
struct HalfWidth {
  void (*encode)(const float* values, int64_t n, UnalignedHalf* out);
  void (*decode)(const UnalignedHalf* encoded, int64_t n, float* out);
  // All ones in them: NaN or infinity.
  uint16_t exponent_bits;
  // An encoded value x is off by at most the larger of relative_error * |x| (where x is at
  // least the smallest normal value) and absolute_error (below it); both are reached.
  double relative_error;
  double absolute_error;
};

// IEEE 754 binary16: 5 bits of exponent, 11 of precision. The largest value is 65504 (65520
// becomes infinity), the smallest normal one 2^-14, the smallest 2^-24.
const HalfWidth& Float16();

// The same without such instructions: what a processor that has none gets.
const HalfWidth& PortableFloat16();

// The upper half of a float32: its 8 bits of exponent, 8 of precision. The largest value is
// about 3.39e38, the smallest normal one 2^-126, the smallest 2^-133.
const HalfWidth& Bfloat16();

}  // namespace ps

#endif  // PS_COMMON_HALF_WIDTH_H_
