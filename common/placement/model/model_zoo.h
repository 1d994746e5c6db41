#ifndef EVENSHARD_COMMON_PLACEMENT_MODEL_MODEL_ZOO_H_
#define EVENSHARD_COMMON_PLACEMENT_MODEL_MODEL_ZOO_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/placement/model/layer_initializer.h"
#include "proto/model.pb.h"

namespace evenshard {

struct BuiltinSpec {
  ModelSpec spec;                  // the input and the layers, written out as in a custom model
  LayerInitializers initializers;  // as in torchvision
};

// Errors: INVALID_ARGUMENT for an unknown name; the message lists the known ones.
absl::StatusOr<BuiltinSpec> BuiltinModel(absl::string_view name);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_MODEL_MODEL_ZOO_H_
