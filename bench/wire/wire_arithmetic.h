#ifndef EVENSHARD_BENCH_WIRE_WIRE_ARITHMETIC_H_
#define EVENSHARD_BENCH_WIRE_WIRE_ARITHMETIC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Writes the gradient that worker `rank` pushes in every iteration, in a worker's layout. Its
// elements are small multiples of a power of two, so their sum over the workers is exact and does
// not depend on the order in which gradients arrive.
void FillWireGradient(int rank, absl::Span<float> gradient);

// Checks every parameter against its value after `iterations` updates by SGD with the mean of these
// gradients, which is computed here independently. Values must be equal, or, if the exchange is not
// in FLOAT32, within the bounds of its rounding (common/wire/half_width.h, block_scaled.h).
// Errors: DATA_LOSS, which names the first element that differs and both values.
absl::Status VerifyParameters(const PlannedConfig& config, int64_t iterations,
                              absl::Span<const float> parameters);

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_WIRE_ARITHMETIC_H_
