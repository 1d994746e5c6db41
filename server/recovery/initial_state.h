#ifndef EVENSHARD_SERVER_RECOVERY_INITIAL_STATE_H_
#define EVENSHARD_SERVER_RECOVERY_INITIAL_STATE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoint/storage/storage.h"
#include "common/placement/planned_config.h"
#include "server/store/parameter_store.h"

namespace evenshard {

// Makes the state of a slot from the checkpoint with this name (CheckpointId::ToString) in the
// config's folder. If `checkpoint` is empty, from the config's initial parameters: those of
// model.initial_parameters, or random ones that follow from the seed. Errors: RESOURCE_EXHAUSTED if
// there is not enough memory; those of CheckpointReader and InitialParameters; INVALID_ARGUMENT if
// `checkpoint` is not the name of a checkpoint.
absl::StatusOr<std::shared_ptr<ParameterStore>> MakeInitialState(const PlannedConfig& config,
                                                                 int slot, Storage* storage,
                                                                 const std::string& checkpoint);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_INITIAL_STATE_H_
