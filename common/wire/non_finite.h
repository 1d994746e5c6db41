#ifndef EVENSHARD_COMMON_WIRE_NON_FINITE_H_
#define EVENSHARD_COMMON_WIRE_NON_FINITE_H_

#include <cstdint>

#include "common/base/element_loop.h"

namespace evenshard {

// Return the index of the first NaN or infinity among `n` elements, or -1 if all are finite, in one
// pass over the memory. The second function is for 16-bit formats, in which a NaN or an infinity
// has all of `exponent_bits` set. Of memory that another process changes meanwhile, only the
// elements are read, and the index may be that of a neighbor.
int64_t FindNonFinite(const UnalignedFloat* values, int64_t n);
int64_t FindNonFinite(const UnalignedHalf* values, int64_t n, uint16_t exponent_bits);

// The index of the first element whose sum `values` + `addend`, in float32, is a NaN or an
// infinity, or -1.
int64_t FindNonFiniteSum(const float* values, const UnalignedFloat* addend, int64_t n);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_NON_FINITE_H_
