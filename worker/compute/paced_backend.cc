#include "worker/compute/paced_backend.h"

#include "common/base/status_macros.h"

namespace evenshard {
namespace {

class PacedHooks final : public LayerHooks {
 public:
  PacedHooks(EmulatedDevice* device, LayerHooks* hooks) : device_(*device), hooks_(*hooks) {}

  absl::Status AwaitParameters(int layer) override {
    return device_.AwaitParameters(layer, hooks_);
  }
  void PassQueued() override { hooks_.PassQueued(); }
  absl::Status GradientReady(int layer) override {
    RETURN_IF_ERROR(device_.AwaitGradients(layer));
    return hooks_.GradientReady(layer);
  }

 private:
  EmulatedDevice& device_;
  LayerHooks& hooks_;
};

}  // namespace

absl::StatusOr<BatchResult> PacedBackend::ForwardBackward(const Batch& batch,
                                                          absl::Span<const float> parameters,
                                                          int64_t iteration,
                                                          absl::Span<float> gradients,
                                                          LayerHooks& hooks) {
  device_.Start();
  PacedHooks paced(&device_, &hooks);
  ASSIGN_OR_RETURN(const BatchResult result,
                   backend_->ForwardBackward(batch, parameters, iteration, gradients, paced));
  RETURN_IF_ERROR(device_.AwaitGradients(-1));
  return result;
}

}  // namespace evenshard
