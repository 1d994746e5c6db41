#include "worker/compute/create_cuda_backend.h"
#include "worker/compute/cuda/backend.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateCudaBackend(const PlannedConfig& config,
                                                                  const BackendOptions& options) {
  return CudaBackendFromConfig(config, options);
}

}  // namespace evenshard
