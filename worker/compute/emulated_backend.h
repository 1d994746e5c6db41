#ifndef PS_WORKER_COMPUTE_EMULATED_BACKEND_H_
#define PS_WORKER_COMPUTE_EMULATED_BACKEND_H_

#include <cstdint>

#include "common/model.h"
#include "worker/compute/backend.h"

namespace ps {

// Gradients of the right size at once, to measure an exchange without computing: no
// arithmetic, no timing, any model. The first call for a gradient buffer fills it with
// small values, a pure function of (rank, tensor, element), the gaps with 0; later
// calls for the same buffer leave it as it is and return at once. The loss is 0 and no
// image is correct. The batch is not looked at.
class EmulatedBackend : public ComputeBackend {
 public:
  EmulatedBackend(const Model& model, int rank) : model_(model), rank_(rank) {}

  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients) override;
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                       absl::Span<const float> parameters) override;

 private:
  const Model model_;
  const int rank_;
  const float* filled_ = nullptr;  // the buffer that has its values
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_EMULATED_BACKEND_H_
