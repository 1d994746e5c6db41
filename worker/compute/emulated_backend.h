#ifndef EVENSHARD_WORKER_COMPUTE_EMULATED_BACKEND_H_
#define EVENSHARD_WORKER_COMPUTE_EMULATED_BACKEND_H_

#include <stop_token>
#include <vector>

#include "common/base/clock.h"
#include "common/placement/model/model.h"
#include "common/placement/plan/device_profile.h"
#include "worker/compute/backend.h"
#include "worker/compute/emulated_device.h"

namespace evenshard {

// Emulates a device: it delivers gradients of the right size in the order and with the timing of
// the device, but computes nothing. It serves to measure an exchange, with any model.
//
// The first pass with a gradient buffer fills the tensors with small values, a pure function of the
// rank and the element's index in its tensor, and the gaps with 0. Later passes with the same
// buffer leave it as it is. The loss is 0, no image is correct, and the batch is ignored.
// Evaluation takes no time.
class EmulatedBackend : public ComputeBackend {
 public:
  struct Options {
    int rank = 0;
    std::vector<LayerTime> times = {};  // one per layer; empty for no time
    const Clock* clock = nullptr;       // must outlive the backend
    std::stop_token stop = {};          // ends a pass with CANCELLED
  };

  EmulatedBackend(const Model& model, Options options);

  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override;
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                       absl::Span<const float> parameters) override;

 private:
  void Fill(absl::Span<float> gradients) const;

  const Model model_;
  const int rank_;
  EmulatedDevice device_;
  const float* filled_ = nullptr;  // the buffer that was filled last
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_EMULATED_BACKEND_H_
