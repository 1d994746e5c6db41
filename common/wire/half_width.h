#ifndef EVENSHARD_COMMON_WIRE_HALF_WIDTH_H_
#define EVENSHARD_COMMON_WIRE_HALF_WIDTH_H_

#include <cstdint>

#include "common/base/element_loop.h"

// Vectorised conversions between float32 and the two 16-bit formats. Every processor gives the same
// bits, whether or not it has instructions for binary16.

namespace evenshard {

// A 16-bit floating-point format. Thread-safe.
//
// Encoding rounds to nearest, ties to even. A value that exceeds the largest finite one by half a
// unit in the last place or more becomes an infinity. A NaN becomes a quiet NaN that keeps its sign
// and the upper bits of its payload. Decoding is exact, and a NaN stays a NaN.
struct HalfWidth {
  void (*encode)(const float* values, int64_t n, UnalignedHalf* out);
  void (*decode)(const UnalignedHalf* encoded, int64_t n, float* out);
  // An encoded value is a NaN or an infinity if all of these bits are set.
  uint16_t exponent_bits;
  // Encoding changes a value x by at most relative_error * |x| if |x| is at least the smallest
  // normal value, and by at most absolute_error if it is smaller. Both bounds are tight.
  double relative_error;
  double absolute_error;
};

// IEEE 754 binary16, with 5 bits of exponent and 11 of precision. The largest value is 65504
// (65520 becomes infinity), the smallest normal one is 2^-14, and the smallest is 2^-24.
const HalfWidth& Float16();

// The same format without instructions for binary16, as a processor uses it that has none.
const HalfWidth& PortableFloat16();

// The upper half of a float32, with 8 bits of exponent and 8 of precision. The largest value is
// about 3.39e38, the smallest normal one is 2^-126, and the smallest is 2^-133.
const HalfWidth& Bfloat16();

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_HALF_WIDTH_H_
