#ifndef PS_WORKER_COMPUTE_BACKEND_H_
#define PS_WORKER_COMPUTE_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/config.h"
#include "worker/compute/layer_hooks.h"
#include "worker/data/batch.h"

namespace ps {

// What one batch gave.
struct BatchResult {
  double loss = 0;      // mean softmax cross-entropy over the batch
  int64_t correct = 0;  // images whose largest score is their label's alone
};

// The device that a backend computes on, where it is not the CPU.
struct DeviceUsage {
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "0000:65:00.0"
  int64_t bytes = 0;       // of its memory, held by the backend
};

// Computes gradients of a model on one device. Parameters and gradients are one
// buffer each, laid out as Model says (tensor.offset, buffer_size() floats).
// Not thread-safe but for Usage; used by the one thread that trains.
class ComputeBackend {
 public:
  virtual ~ComputeBackend() = default;

  // The forward and backward pass over `batch`: writes the gradient of the mean
  // loss into `gradients`, every tensor whole. `iteration` selects the dropout mask.
  // Blocks until done; `hooks` hear of each layer meanwhile. `batch` may be smaller than the
  // training batch size, but not where the model has batch normalisation: the mean is over its
  // images. The gaps between tensors in `gradients` are 0
  // after if they were 0 before. Errors: INVALID_ARGUMENT for a label out of range, an empty batch
  // or one larger than the backend was made for, or a buffer of the wrong size; INTERNAL and
  // RESOURCE_EXHAUSTED with the layer and the device library's message; those of `hooks`.
  virtual absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                                      absl::Span<const float> parameters,
                                                      int64_t iteration,
                                                      absl::Span<float> gradients,
                                                      LayerHooks& hooks) = 0;

  // The forward pass as in evaluation (no dropout). Errors: as above.
  virtual absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                               absl::Span<const float> parameters) = 0;

  // Absent on the CPU. Constant after creation; from any thread.
  virtual std::optional<DeviceUsage> Usage() const { return std::nullopt; }

 protected:
  ComputeBackend() = default;
  ComputeBackend(const ComputeBackend&) = delete;
  ComputeBackend& operator=(const ComputeBackend&) = delete;
};

// The backend that the config's `compute` asks for, for the worker of `rank`. Emulated
// time passes on `clock`, which must outlive the backend, until `stop`.
// Errors: INVALID_ARGUMENT where the batch size is too small for the model (CheckBatchSize);
// RESOURCE_EXHAUSTED where memory does not suffice for it.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateComputeBackend(const Config& config, int rank,
                                                                     const Clock* clock,
                                                                     const std::stop_token& stop);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_BACKEND_H_
