#ifndef EVENSHARD_WORKER_COMPUTE_BACKEND_H_
#define EVENSHARD_WORKER_COMPUTE_BACKEND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/compute/layer_hooks.h"
#include "worker/data/batch.h"

namespace evenshard {

// The outcome of a pass over one batch.
struct BatchResult {
  double loss = 0;      // mean softmax cross-entropy over the batch
  int64_t correct = 0;  // images whose label alone has the largest score
};

// Host memory that is used in every pass.
struct HostBuffers {
  absl::Span<const float> parameters;
  // If empty, the gradients stay on the device. This serves to time the computation alone.
  absl::Span<float> gradients = {};
  // Memory in which the images of batches may lie.
  std::vector<absl::Span<const float>> images = {};
};

// The device that a backend computes on, unless that is the CPU.
struct DeviceUsage {
  std::string name;        // "NVIDIA H200"
  std::string pci_bus_id;  // "0000:65:00.0"
  int64_t bytes = 0;       // device memory that the backend holds
};

// A backend computes the gradients of a model on one device. Parameters and gradients are one
// buffer each, laid out as Model defines (Tensor::offset, Model::buffer_size() floats).
//
// ParametersWritten and Usage may be called from any thread. All other calls must come from one
// thread at a time.
class ComputeBackend {
 public:
  virtual ~ComputeBackend() = default;

  // Announces the host memory that later passes use. The memory must stay valid until the next call
  // of UseBuffers or the end of the backend. A backend with a device of its own page-locks the
  // memory so that copies overlap with computation, and requires this call before the first pass.
  // Not while ParametersWritten is called; parts of a layer that it has announced without the rest
  // are forgotten. Errors: those of the device library.
  virtual absl::Status UseBuffers(const HostBuffers& buffers) { return absl::OkStatus(); }

  // Says that the floats [begin, begin + count) of the parameters have been written, so that a
  // device can fetch them at once. May be called from any thread, but not while a pass may read
  // them (see LayerHooks). The next pass returns the error if the copy fails.
  virtual void ParametersWritten(int64_t begin, int64_t count) {}

  // Announces the batch of the next ForwardBackward, so that a device fetches it while it still
  // computes the current one. Call it from LayerHooks::PassQueued. The batch must not change until
  // its own pass is queued. The next ForwardBackward returns the error if the copy fails. A further
  // call before the next pass announces another batch instead, and the one before may change.
  virtual void Prefetch(const Batch& next) {}

  // Runs the forward and backward pass over `batch`, and writes the gradient of the mean loss to
  // every tensor of `gradients`. `iteration` selects the dropout mask. Blocks until the pass is
  // done, and calls `hooks` for each layer meanwhile. Gaps between tensors in `gradients` that were
  // 0 before are 0 afterwards.
  //
  // `batch` may be smaller than the training batch size, and the mean is then over its images. A
  // model with batch normalisation accepts full batches only.
  //
  // Errors: INVALID_ARGUMENT for a label out of range, a batch that is empty, larger than the
  // backend was made for, or smaller than a model with batch normalisation accepts, or a buffer of
  // the wrong size; INTERNAL and RESOURCE_EXHAUSTED with the layer and the device library's
  // message; and any error that `hooks` return.
  virtual absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                                      absl::Span<const float> parameters,
                                                      int64_t iteration,
                                                      absl::Span<float> gradients,
                                                      LayerHooks& hooks) = 0;

  // Runs the forward pass as in evaluation: without dropout, and with the running statistics of
  // batch normalisation. Errors: as for ForwardBackward.
  virtual absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                               absl::Span<const float> parameters) = 0;

  // Returns nullopt if only the CPU computes. Constant after creation. May be called from any
  // thread.
  virtual std::optional<DeviceUsage> Usage() const { return std::nullopt; }

 protected:
  ComputeBackend() = default;
  ComputeBackend(const ComputeBackend&) = delete;
  ComputeBackend& operator=(const ComputeBackend&) = delete;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_BACKEND_H_
