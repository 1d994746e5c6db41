#ifndef PS_WORKER_COMPUTE_EMULATED_BACKEND_H_
#define PS_WORKER_COMPUTE_EMULATED_BACKEND_H_

#include <stop_token>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/device_profile.h"
#include "common/model.h"
#include "worker/compute/backend.h"

namespace ps {

// Gradients of the right size in the order and with the timing of a device, without
// arithmetic and for any model, to measure an exchange. The first call for a gradient
// buffer fills it with small values, a pure function of (rank, tensor, element), the gaps
// with 0; later calls for the same buffer leave it as it is. The loss is 0 and no image
// is correct. The batch is not looked at. Evaluation takes no time.
//
// The device works through the layers without a pause, but for those whose parameters are
// not there. What the calling thread is late, in waking up or because of its hooks, does
// not delay the device.
class EmulatedBackend : public ComputeBackend {
 public:
  struct Options {
    int rank = 0;
    std::vector<LayerTime> times = {};  // by layer of the model; empty: no time
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
  absl::Status RunForward(LayerHooks& hooks);
  absl::Status RunBackward(LayerHooks& hooks);
  // Until the device has done what it was given so far.
  absl::Status AwaitDevice() const;

  const Model model_;
  const Options options_;
  const float* filled_ = nullptr;  // the buffer that has its values
  absl::Time device_free_;         // when the device will have done what it was given
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_EMULATED_BACKEND_H_
