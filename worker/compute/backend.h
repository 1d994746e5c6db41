#ifndef PS_WORKER_COMPUTE_BACKEND_H_
#define PS_WORKER_COMPUTE_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/config.h"
#include "worker/compute/layer_hooks.h"
#include "worker/data/batch.h"
#include "worker/trace.h"

namespace ps {

// What one batch gave.
struct BatchResult {
  double loss = 0;      // mean softmax cross-entropy over the batch
  int64_t correct = 0;  // images whose largest score is their label's alone
};

// Memory of the host that a backend is given again and again.
struct HostBuffers {
  absl::Span<const float> parameters;
  absl::Span<float> gradients = {};  // empty: they stay on the device, to time its computing alone
  std::vector<absl::Span<const float>> images = {};  // in which batches may lie
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

  // Announces the memory that passes will be given; it must outlive the backend, or others must be
  // announced. A device page-locks it, so that its copies go on beside its computing, and needs
  // this before any pass. Errors: those of the device library.
  virtual absl::Status UseBuffers(const HostBuffers& buffers) { return absl::OkStatus(); }

  // Says that the floats [begin, begin + count) of the parameters have been written, so that a
  // device fetches them at once. From any thread; not while a pass may read them (see LayerHooks).
  // An error is that of the next pass.
  virtual void ParametersWritten(int64_t begin, int64_t count) {}

  // Says which batch the next ForwardBackward is of, so that a device fetches it while it computes
  // this one. For LayerHooks::PassQueued; the batch must then stay as it is until its own pass is
  // queued. An error is that of the next pass.
  virtual void Prefetch(const Batch& next) {}

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

// What a worker's backend is made with, beside its config.
struct BackendOptions {
  int rank = 0;
  const Clock* clock = nullptr;  // on which emulated time passes, until `stop`
  Trace* trace = nullptr;        // null: none is kept. Of what a device does beside the worker
  std::stop_token stop = {};
};

// The backend that the config's `compute` asks for. `config` and what `options` point to must
// outlive it. Errors: INVALID_ARGUMENT where the batch size is too small for the model
// (CheckBatchSize); RESOURCE_EXHAUSTED where memory does not suffice for it; FAILED_PRECONDITION
// where there is no such device, or its driver or libraries are too old; UNIMPLEMENTED for CUDA in
// a worker built without it.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CreateComputeBackend(const Config& config,
                                                                     const BackendOptions& options);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_BACKEND_H_
