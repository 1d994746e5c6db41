#include <algorithm>

#include "worker/compute/cuda/backend.h"
#include "worker/compute/cuda/error.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<ComputeBackend>> CudaBackendFromConfig(
    const PlannedConfig& config, const BackendOptions& options) {
  const ClusterConfig& proto = config.proto();
  const Compute::Cuda& cuda = proto.compute().cuda();
  int number = 0;
  if (cuda.device_size() > 0) {
    number = cuda.device(options.rank % cuda.device_size());
  } else {
    try {
      number = options.rank % std::max(1, CudaDevice::Count());
    } catch (const CudaError& error) {
      return absl::FailedPreconditionError(error.what());
    }
  }
  return CudaBackend::Create(
      config.model(), {.batch_size = proto.training().batch_size(),
                       .device = {.number = number,
                                  .precision = cuda.precision(),
                                  .workspace_bytes = static_cast<size_t>(cuda.workspace_bytes()),
                                  .timed_engines = cuda.timed_engines(),
                                  .deterministic = proto.update().deterministic()},
                       .seed = proto.training().seed(),
                       .rank = options.rank,
                       .trace = options.trace});
}

}  // namespace evenshard
