#ifndef PS_WORKER_COMPUTE_CREATE_CUDA_BACKEND_H_
#define PS_WORKER_COMPUTE_CREATE_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/compute/backend.h"

namespace ps {

// CreateComputeBackend for compute.backend: CUDA. Workers are linked with one of two: the backend
// (--config=cuda), or an error that says that it was left out.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateCudaBackend(const Config& config,
                                                                  const BackendOptions& options);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CREATE_CUDA_BACKEND_H_
