#ifndef EVENSHARD_CLIENT_CLIENT_CONFIG_H_
#define EVENSHARD_CLIENT_CLIENT_CONFIG_H_

#include "absl/status/statusor.h"
#include "client/evenshard.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Reads the config of a call of client/evenshard.h: a file or the text itself, the other one is
// null. Errors: INVALID_ARGUMENT unless it is one of them; those of Config::Load.
absl::StatusOr<PlannedConfig> ReadConfig(const char* path, const char* text,
                                         const char* const* overrides, int override_count);

// Describes a tensor. Its pointers live as long as the model.
evenshard_tensor TensorAt(const Model& model, int tensor);

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_CLIENT_CONFIG_H_
