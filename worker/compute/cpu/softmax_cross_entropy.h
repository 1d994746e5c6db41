#ifndef PS_WORKER_COMPUTE_CPU_SOFTMAX_CROSS_ENTROPY_H_
#define PS_WORKER_COMPUTE_CPU_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "absl/types/span.h"
#include "worker/compute/backend.h"

namespace ps {

// The mean over the images of -log softmax(scores)[label], in double and without
// overflow at any score. `scores`: labels.size() rows of `classes`. Writes the
// gradient of the mean by the scores into `gradient`, of the same size or empty.
// An image whose largest score is not its label's alone does not count as correct.
BatchResult SoftmaxCrossEntropy(absl::Span<const float> scores, absl::Span<const int32_t> labels,
                                int64_t classes, absl::Span<float> gradient);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_SOFTMAX_CROSS_ENTROPY_H_
