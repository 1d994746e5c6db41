#ifndef EVENSHARD_WORKER_TRAINING_CREATE_BACKEND_H_
#define EVENSHARD_WORKER_TRAINING_CREATE_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/compute/backend_options.h"

namespace evenshard {

// Creates the backend that the config's `compute` asks for. `config` and all objects that `options`
// point to must outlive it.
//
// Errors: INVALID_ARGUMENT if the batch size is too small for the model (see CheckBatchSize);
// RESOURCE_EXHAUSTED if memory does not suffice; FAILED_PRECONDITION if the device does not exist,
// or the device, its driver or its libraries are too old; UNIMPLEMENTED for CUDA in a worker that
// was built without it.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateComputeBackend(const PlannedConfig& config,
                                                                     const BackendOptions& options);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_CREATE_BACKEND_H_
