#include "worker/compute/emulated_backend.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {

EmulatedBackend::EmulatedBackend(const Model& model, Options options)
    : model_(model), options_([&] {
        options.times.resize(model.layers().size());
        return std::move(options);
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
  device_free_ = options_.clock->Now();
  RETURN_IF_ERROR(RunForward(hooks));
  RETURN_IF_ERROR(RunBackward(hooks));
  return BatchResult();
}

void EmulatedBackend::Fill(absl::Span<float> gradients) const {
  std::fill(gradients.begin(), gradients.end(), 0.0f);
  for (const Tensor& tensor : model_.tensors()) {
    for (int64_t i = 0; i < tensor.size; ++i) {
      // The values are -0.008 to 0.008, so small that an optimizer can run for long.
      gradients[tensor.offset + i] = static_cast<float>((i + options_.rank) % 17 - 8) * 1e-3f;
    }
  }
}

absl::Status EmulatedBackend::RunForward(LayerHooks& hooks) {
  for (size_t i = 0; i < model_.layers().size(); ++i) {
    if (model_.layers()[i].tensor_count > 0) {
      RETURN_IF_ERROR(AwaitDevice());
      const absl::Time before = options_.clock->Now();
      RETURN_IF_ERROR(hooks.AwaitParameters(i));
      // Assigning Now() instead would add this thread's late wake-ups to the device's time.
      device_free_ += options_.clock->Now() - before;
    }
    device_free_ += absl::Seconds(options_.times[i].forward_seconds);
  }
  return absl::OkStatus();
}

absl::Status EmulatedBackend::RunBackward(LayerHooks& hooks) {
  for (size_t i = model_.layers().size(); i-- > 0;) {
    device_free_ += absl::Seconds(options_.times[i].backward_seconds);
    if (model_.layers()[i].tensor_count == 0) continue;
    RETURN_IF_ERROR(AwaitDevice());
    RETURN_IF_ERROR(hooks.GradientReady(i));
  }
  return AwaitDevice();
}

absl::Status EmulatedBackend::AwaitDevice() const {
  if (device_free_ <= options_.clock->Now()) return absl::OkStatus();
  if (options_.clock->SleepUntil(device_free_, options_.stop)) return absl::OkStatus();
  return absl::CancelledError("the emulated device was told to stop");
}

absl::StatusOr<BatchResult> EmulatedBackend::Evaluate(const Batch& batch,
                                                      absl::Span<const float> parameters) {
  return BatchResult();
}

}  // namespace evenshard
