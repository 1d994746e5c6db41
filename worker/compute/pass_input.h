#ifndef EVENSHARD_WORKER_COMPUTE_PASS_INPUT_H_
#define EVENSHARD_WORKER_COMPUTE_PASS_INPUT_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "common/placement/model/model.h"
#include "worker/data/batch.h"

namespace evenshard {

// Both check that a backend which was made for up to `batch_size` images can process `batch` with
// buffers of these sizes. Errors: INVALID_ARGUMENT, as ComputeBackend says.
absl::Status CheckEvaluation(const Model& model, int64_t batch_size, const Batch& batch,
                             size_t parameter_floats);
absl::Status CheckTraining(const Model& model, int64_t batch_size, const Batch& batch,
                           size_t parameter_floats, size_t gradient_floats);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_PASS_INPUT_H_
