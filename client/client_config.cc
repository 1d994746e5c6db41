#include "client/client_config.h"

#include <algorithm>
#include <string>
#include <vector>

namespace evenshard {

absl::StatusOr<PlannedConfig> ReadConfig(const char* path, const char* text,
                                         const char* const* overrides, int override_count) {
  if ((path == nullptr) == (text == nullptr)) {
    return absl::InvalidArgumentError("either config_path or config_text is needed");
  }
  const std::vector<std::string> changes(overrides, overrides + override_count);
  return path != nullptr ? PlannedConfig::Load(path, changes)
                         : PlannedConfig::Parse(text, "config", changes);
}

evenshard_tensor TensorAt(const Model& model, int tensor) {
  const Tensor& info = model.tensors()[tensor];
  const auto& layers = model.layers();
  const auto layer = std::find_if(layers.begin(), layers.end(), [tensor](const Layer& each) {
    return tensor >= each.first_tensor && tensor < each.first_tensor + each.tensor_count;
  });
  return {.name = info.name.c_str(),
          .shape = info.shape.data(),
          .dimensions = static_cast<int>(info.shape.size()),
          .role = info.role == TensorRole::kParameter ? EVENSHARD_PARAMETER
                                                      : EVENSHARD_RUNNING_STATISTIC,
          .layer = layer->name.c_str()};
}

}  // namespace evenshard
