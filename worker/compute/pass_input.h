#ifndef PS_WORKER_COMPUTE_PASS_INPUT_H_
#define PS_WORKER_COMPUTE_PASS_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/model.h"
#include "worker/data/batch.h"

namespace ps {

// Whether a backend made for up to `batch_size` images can take `batch`, and buffers of so many
// floats. Errors: INVALID_ARGUMENT, as ComputeBackend says.
absl::Status CheckEvaluation(const Model& model, int64_t batch_size, const Batch& batch,
                             size_t parameter_floats);
absl::Status CheckTraining(const Model& model, int64_t batch_size, const Batch& batch,
                           size_t parameter_floats, size_t gradient_floats);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_PASS_INPUT_H_
