#include "worker/compute/emulated_backend.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {

EmulatedBackend::EmulatedBackend(const Model& model, Options options)
    : model_(model), rank_(options.rank), device_([&] {
        options.times.resize(model.layers().size());
        return EmulatedDevice::Options{std::move(options.times), options.clock,
                                       std::move(options.stop)};
      }()) {}

absl::StatusOr<BatchResult> EmulatedBackend::ForwardBackward(const Batch& batch,
                                                             absl::Span<const float> parameters,
                                                             int64_t iteration,
                                                             absl::Span<float> gradients,
                                                             LayerHooks& hooks) {
  if (static_cast<int64_t>(gradients.size()) != model_.buffer_size()) {
    return absl::InvalidArgumentError(absl::StrCat("the gradient buffer has ", gradients.size(),
                                                   " floats, the model needs ",
                                                   model_.buffer_size()));
  }
  if (gradients.data() != filled_) Fill(gradients);
  filled_ = gradients.data();
  device_.Start();
  const std::vector<Layer>& layers = model_.layers();
  for (int layer = 0; layer < device_.layers(); ++layer) {
    if (layers[layer].tensor_count == 0) continue;
    RETURN_IF_ERROR(device_.AwaitParameters(layer, hooks));
  }
  for (int layer = device_.layers() - 1; layer >= 0; --layer) {
    if (layers[layer].tensor_count == 0) continue;
    RETURN_IF_ERROR(device_.AwaitGradients(layer));
    RETURN_IF_ERROR(hooks.GradientReady(layer));
  }
  RETURN_IF_ERROR(device_.AwaitGradients(-1));
  return BatchResult();
}

void EmulatedBackend::Fill(absl::Span<float> gradients) const {
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  for (const Tensor& tensor : model_.tensors()) {
    for (int64_t i = 0; i < tensor.size; ++i) {
      // The values are -0.008 to 0.008, so small that an optimizer can run for long.
      gradients[tensor.offset + i] = static_cast<float>((i + rank_) % 17 - 8) * 1e-3f;
    }
  }
}

absl::StatusOr<BatchResult> EmulatedBackend::Evaluate(const Batch& batch,
                                                      absl::Span<const float> parameters) {
  return BatchResult();
}

}  // namespace evenshard
