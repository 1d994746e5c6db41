#ifndef PS_COMMON_MODEL_MODEL_ZOO_H_
#define PS_COMMON_MODEL_MODEL_ZOO_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"

namespace ps {

// Returns the input and the layers of a built-in model, written out as in a custom model.
//
// Errors: INVALID_ARGUMENT for an unknown name; the message lists the known ones.
absl::StatusOr<ModelSpec> BuiltinModel(absl::string_view name);

}  // namespace ps

#endif  // PS_COMMON_MODEL_MODEL_ZOO_H_
