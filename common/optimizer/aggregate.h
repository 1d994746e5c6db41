#ifndef EVENSHARD_COMMON_OPTIMIZER_AGGREGATE_H_
#define EVENSHARD_COMMON_OPTIMIZER_AGGREGATE_H_

#include <cstdint>

#include "common/base/element_loop.h"

namespace evenshard {

// Adds `n` elements of a gradient, or of what else is like one, to `sum` in one pass over the
// memory. Thread-safe for disjoint
// sums. REQUIRES: `sum` and `gradient` do not overlap.
void AddGradient(float* sum, const UnalignedFloat* gradient, int64_t n);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_OPTIMIZER_AGGREGATE_H_
