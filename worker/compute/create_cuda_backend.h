#ifndef EVENSHARD_WORKER_COMPUTE_CREATE_CUDA_BACKEND_H_
#define EVENSHARD_WORKER_COMPUTE_CREATE_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/compute/backend_options.h"

namespace evenshard {

// Implements CreateComputeBackend for `compute.backend: CUDA`. A worker is linked with one of two
// definitions: one creates the backend (--config=cuda), the other returns an error which says that
// the worker was built without CUDA.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateCudaBackend(const PlannedConfig& config,
                                                                  const BackendOptions& options);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CREATE_CUDA_BACKEND_H_
