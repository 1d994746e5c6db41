#ifndef EVENSHARD_WORKER_COMPUTE_PACED_BACKEND_H_
#define EVENSHARD_WORKER_COMPUTE_PACED_BACKEND_H_

#include <memory>
#include <optional>

#include "worker/compute/backend.h"
#include "worker/compute/emulated_device.h"

namespace evenshard {

// Another backend's arithmetic in the time of an emulated device (compute.pace): parameters are
// needed and gradients are there no earlier than on the device, and a pass takes at least as long.
// Where the backend is slower, so is this one. Evaluation is not slowed down.
class PacedBackend final : public ComputeBackend {
 public:
  PacedBackend(std::unique_ptr<ComputeBackend> backend, EmulatedDevice::Options device)
      : backend_(std::move(backend)), device_(std::move(device)) {}

  absl::Status UseBuffers(const HostBuffers& buffers) override {
    return backend_->UseBuffers(buffers);
  }
  void ParametersWritten(int64_t begin, int64_t count) override {
    backend_->ParametersWritten(begin, count);
  }
  void Prefetch(const Batch& next) override { backend_->Prefetch(next); }
  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override;
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                       absl::Span<const float> parameters) override {
    return backend_->Evaluate(batch, parameters);
  }
  std::optional<DeviceUsage> Usage() const override { return backend_->Usage(); }

 private:
  const std::unique_ptr<ComputeBackend> backend_;
  EmulatedDevice device_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_PACED_BACKEND_H_
