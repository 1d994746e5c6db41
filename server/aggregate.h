#ifndef PS_SERVER_AGGREGATE_H_
#define PS_SERVER_AGGREGATE_H_

#include <cstdint>

#include "common/unaligned.h"

namespace ps {

// What is done to the `n` elements of a received gradient at `gradient`, in one pass over the
// memory. `sum` does not overlap it. Thread-safe on disjoint sums.

// sum = gradient.
void CopyGradient(float* sum, const UnalignedFloat* gradient, int64_t n);

// sum += gradient.
void AddGradient(float* sum, const UnalignedFloat* gradient, int64_t n);

// The index of the first NaN or infinity, or -1.
int64_t FindNonFinite(const UnalignedFloat* gradient, int64_t n);

}  // namespace ps

#endif  // PS_SERVER_AGGREGATE_H_
