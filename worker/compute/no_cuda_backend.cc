#include "worker/compute/create_cuda_backend.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateCudaBackend(const PlannedConfig& config,
                                                                  const BackendOptions& options) {
  return absl::UnimplementedError(
      "compute.backend is CUDA, and this worker was built without it: bazel build --config=cuda, "
      "which needs the CUDA toolkit, builds one with it");
}

}  // namespace evenshard
