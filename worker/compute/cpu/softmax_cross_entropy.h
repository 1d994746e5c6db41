#ifndef EVENSHARD_WORKER_COMPUTE_CPU_SOFTMAX_CROSS_ENTROPY_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/compute/backend.h"

namespace evenshard {

// Returns the mean of -log softmax(scores)[label] over the images, and the number of correct ones.
// It is computed in double, and cannot overflow. `scores` has labels.size() rows of `classes`. If
// `gradient` is not empty, it has the size of `scores` and receives the gradient of the mean with
// respect to them. An image is correct if its label alone has the largest score.
BatchResult SoftmaxCrossEntropy(absl::Span<const float> scores, absl::Span<const int32_t> labels,
                                int64_t classes, absl::Span<float> gradient);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_SOFTMAX_CROSS_ENTROPY_H_
