#include "client/c_types.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/config/text/config_text.h"
#include "common/security/tls_files.h"

namespace evenshard {
namespace {

// Errors: INVALID_ARGUMENT, which begins with `what`.
absl::Status ParseMessage(const char* text, absl::string_view what,
                          google::protobuf::Message* message) {
  const std::vector<TextProblem> problems = ParseText(text, message, /*places=*/nullptr);
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": line ", problems[0].line, ": ", problems[0].ToString()));
}

// In a ring (`is_ring`) every tensor is a layer of its own, as RingTensors has it.
absl::StatusOr<Declaration> DeclarationFrom(const evenshard_options& options, bool is_ring) {
  Declaration declaration;
  for (int i = 0; i < options.tensor_count; ++i) {
    const evenshard_tensor& given = options.tensors[i];
    DeclaredTensor& tensor = *declaration.mutable_model()->add_tensor();
    tensor.set_name(OrEmpty(given.name));
    for (int d = 0; d < given.dimensions; ++d) tensor.add_shape(given.shape[d]);
    if (!DeclaredTensor::Role_IsValid(given.role)) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name(), ": has the role ", given.role,
                                                     ", allowed: those of evenshard_role"));
    }
    if (given.role != EVENSHARD_PARAMETER) {
      tensor.set_role(static_cast<DeclaredTensor::Role>(given.role));
    }
    if (is_ring) {
      tensor.set_layer(tensor.name());
    } else if (given.layer != nullptr) {
      tensor.set_layer(given.layer);
    }
    if (!Encoding_IsValid(given.type)) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.name(), ": has the type ", given.type,
                                                     ", allowed: those of evenshard_type"));
    }
    if (given.type != EVENSHARD_FLOAT32) tensor.set_type(static_cast<Encoding>(given.type));
  }
  if (options.optimizer != nullptr) {
    RETURN_IF_ERROR(ParseMessage(options.optimizer, "the optimizer is not an OptimizerConfig",
                                 declaration.mutable_optimizer()));
  }
  if (options.local != nullptr) {
    RETURN_IF_ERROR(
        ParseMessage(options.local, "`local` is not LocalSteps", declaration.mutable_local()));
  }
  if (options.clip_global_norm != 0) declaration.set_clip_global_norm(options.clip_global_norm);
  if (options.clip_value != 0) declaration.set_clip_value(options.clip_value);
  return declaration;
}

// `self` is whom the certificates name; an override of a reader may give another one.
template <typename Options>
absl::StatusOr<PlannedConfig> ReadConfigAs(const ProcessName& self, const Options& options) {
  const char* const path = options.config_path;
  const char* const text = options.config_text;
  if ((path == nullptr) == (text == nullptr)) {
    return absl::InvalidArgumentError("either config_path or config_text is needed");
  }
  std::vector<std::string> changes = {NameOverride(self)};
  changes.insert(changes.end(), options.overrides, options.overrides + options.override_count);
  return path != nullptr ? PlannedConfig::Load(path, changes)
                         : PlannedConfig::Parse(text, "config", changes);
}

}  // namespace

std::string OrEmpty(const char* text) { return text == nullptr ? "" : text; }

absl::StatusOr<PlannedConfig> ReadConfig(const evenshard_options& options) {
  return ReadConfigAs({.role = Role::kWorker, .index = options.rank}, options);
}

absl::StatusOr<PlannedConfig> ReadConfig(const evenshard_reader_options& options) {
  return ReadConfigAs({.role = Role::kReader}, options);
}

absl::StatusOr<PlannedConfig> ConfigFrom(const evenshard_options& options) {
  ASSIGN_OR_RETURN(PlannedConfig config, ReadConfig(options));
  if (options.tensor_count > 0 || options.optimizer != nullptr || options.clip_global_norm != 0 ||
      options.clip_value != 0 || options.local != nullptr) {
    ASSIGN_OR_RETURN(const Declaration declaration, DeclarationFrom(options, config.is_ring()));
    ASSIGN_OR_RETURN(config, config.Declared(declaration));
  }
  if (config.has_model()) return config;
  return config.FieldError("model.from_workers", "needs a worker that brings tensors");
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
          .role = static_cast<evenshard_role>(info.role),
          .layer = layer->name.c_str(),
          .type = static_cast<evenshard_type>(info.type)};
}

std::vector<Hyperparameters> HyperparametersOf(const Model& model,
                                               const evenshard_hyperparameters* by_tensor) {
  std::vector<Hyperparameters> all;
  if (by_tensor == nullptr) return all;
  const auto given = [](float number) {
    return std::isnan(number) ? std::nullopt : std::optional(number);
  };
  const size_t tensors = model.tensors().size();
  for (const evenshard_hyperparameters& numbers : absl::MakeSpan(by_tensor, tensors)) {
    all.push_back({.learning_rate = given(numbers.learning_rate),
                   .momentum = given(numbers.momentum),
                   .beta2 = given(numbers.beta2),
                   .weight_decay = given(numbers.weight_decay),
                   .epsilon = given(numbers.epsilon)});
  }
  return all;
}

absl::StatusOr<WorkerState::Memory> MemoryOf(const evenshard_state& state) {
  if (state.refusal != nullptr) return absl::FailedPreconditionError(state.refusal);
  WorkerState::Memory memory;
  for (int i = 0; i < state.count; ++i) {
    memory.emplace_back(static_cast<char*>(state.parts[i]), state.bytes[i]);
  }
  return memory;
}

}  // namespace evenshard
