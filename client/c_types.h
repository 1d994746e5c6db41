#ifndef EVENSHARD_CLIENT_C_TYPES_H_
#define EVENSHARD_CLIENT_C_TYPES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/evenshard.h"
#include "common/placement/model/model.h"
#include "common/placement/planned_config.h"
#include "common/wire/hyperparameters.h"
#include "worker/exchange/core/worker_state/worker_state.h"

namespace evenshard {

// Translates the types of client/evenshard.h.

// Returns "" for null.
std::string OrEmpty(const char* text);

// Reads the config that is named or given, without what the options declare beside it. Errors:
// INVALID_ARGUMENT unless there is either a path or a text; those of PlannedConfig::Load.
absl::StatusOr<PlannedConfig> ReadConfig(const evenshard_options& options);
absl::StatusOr<PlannedConfig> ReadConfig(const evenshard_reader_options& options);

// The same with the model that the options declare. Errors: those of ReadConfig; INVALID_ARGUMENT
// if what is declared is wrong or missing.
absl::StatusOr<PlannedConfig> ConfigFrom(const evenshard_options& options);

// Describes a tensor. Its pointers live as long as the model.
evenshard_tensor TensorAt(const Model& model, int tensor);

// Returns none for null, and otherwise those of each of the model's tensors.
std::vector<Hyperparameters> HyperparametersOf(const Model& model,
                                               const evenshard_hyperparameters* by_tensor);

// Errors: the refusal.
absl::StatusOr<WorkerState::Memory> MemoryOf(const evenshard_state& state);

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_C_TYPES_H_
