#ifndef PS_SERVER_AGGREGATE_H_
#define PS_SERVER_AGGREGATE_H_

#include <cstdint>

#include "common/unaligned.h"

namespace ps {

// sum += gradient, `n` elements in one pass over the memory. `sum` does not overlap the
// gradient. Thread-safe on disjoint sums.
void AddGradient(float* sum, const UnalignedFloat* gradient, int64_t n);

}  // namespace ps

#endif  // PS_SERVER_AGGREGATE_H_
