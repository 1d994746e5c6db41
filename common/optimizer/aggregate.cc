#include "common/optimizer/aggregate.h"

namespace evenshard {

EVENSHARD_VECTORIZED
void AddGradient(float* __restrict sum, const UnalignedFloat* __restrict gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += gradient[i];
}

}  // namespace evenshard
