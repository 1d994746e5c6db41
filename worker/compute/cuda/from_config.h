#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_FROM_CONFIG_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_FROM_CONFIG_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/compute/backend_options.h"

namespace evenshard {

// Creates a CudaBackend as the config's `compute.cuda` asks for. The worker's rank selects one of
// the configured devices, or one of all devices. Errors: those of CudaBackend::Create.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CudaBackendFromConfig(
    const PlannedConfig& config, const BackendOptions& options);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_FROM_CONFIG_H_
