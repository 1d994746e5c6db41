#ifndef EVENSHARD_CLIENT_CLIENT_CONFIG_H_
#define EVENSHARD_CLIENT_CLIENT_CONFIG_H_

#include "absl/status/statusor.h"
#include "client/evenshard.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Reads a config from a file or from a text; the other argument is null. Errors: INVALID_ARGUMENT
// unless exactly one of the two is given; those of Config::Load.
absl::StatusOr<PlannedConfig> ReadConfig(const char* path, const char* text,
                                         const char* const* overrides, int override_count);

// Describes a tensor. Its pointers live as long as the model.
evenshard_tensor TensorAt(const Model& model, int tensor);

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_CLIENT_CONFIG_H_
