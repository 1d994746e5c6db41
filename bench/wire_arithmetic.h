#ifndef PS_BENCH_WIRE_ARITHMETIC_H_
#define PS_BENCH_WIRE_ARITHMETIC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/config.h"

namespace ps {

// The gradient that worker `rank` pushes at every iteration, in a worker's layout. Its
// elements are small multiples of a power of two: added up over the workers they are exact
// in any order, so that the result does not depend on who comes first.
void FillWireGradient(int rank, absl::Span<float> gradient);

// Compares every parameter with what SGD makes of the initial values in `iterations`
// updates with the mean of these gradients, computed here anew: to the bit, or, where the
// exchange is not in FLOAT32, within the bounds of its rounding (common/half_width.h).
// Errors: DATA_LOSS naming the first element that differs, with both values.
absl::Status VerifyParameters(const Config& config, int64_t iterations,
                              absl::Span<const float> parameters);

}  // namespace ps

#endif  // PS_BENCH_WIRE_ARITHMETIC_H_
