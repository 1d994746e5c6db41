#ifndef PS_WORKER_COMPUTE_CUDA_FROM_CONFIG_H_
#define PS_WORKER_COMPUTE_CUDA_FROM_CONFIG_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/compute/backend.h"

namespace ps {

// A CudaBackend as the config's `compute.cuda` asks for it, on the device that is the worker's by
// its rank. Errors: those of CudaBackend::Create.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CudaBackendFromConfig(
    const Config& config, const BackendOptions& options);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_FROM_CONFIG_H_
