#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_TRANSFER_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_TRANSFER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/placement/model/model.h"
#include "worker/compute/cuda/device.h"
#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/memory.h"
#include "worker/compute/cuda/timeline.h"

namespace evenshard {

// Moves parameters to the device and gradients from it, between the worker's two page-locked
// buffers and the device's, while the device computes:
//
//   Written        Called from any thread when a part of the parameters is in the host's buffer.
//                  Queues its copy to the device at once, on a stream of its own.
//   AwaitOnDevice  Makes the work that is queued next wait for one layer's parameters only.
//   Fetch          Queues the copy of a layer's gradients to the host's buffer, on another stream.
//                  The copy waits for the work that was queued so far, which computes them.
//   AwaitOnHost    Blocks until they are there.
//
// A layer's parameters must be written completely, part by part, before the first pass. What is not
// written after that stays on the device as it is: a shard that has not updated a chunk does not
// send it again. Thread-safe to the extent that ComputeBackend requires. Throws CudaError.
class CudaTransfer {
 public:
  // The arguments must outlive the transfer.
  CudaTransfer(CudaDevice* device, const Model* model, CudaMemory* memory, CudaTimeline* timeline);

  // Must be called once the memory is allocated.
  void Prepare();
  // Sets and page-locks the host's buffers, which have the model's layout. They stay locked until
  // the next call. If `gradients` is empty, the gradients stay on the device. Forgets the parts of
  // layers that were written without the rest.
  void UseBuffers(absl::Span<const float> parameters, absl::Span<float> gradients);
  bool Uses(absl::Span<const float> parameters) const {
    return parameters.data() == host_parameters_.data();
  }

  bool fetches() const { return !host_gradients_.empty(); }

  // Does not throw. The next AwaitOnDevice throws the error instead.
  void Written(int64_t begin, int64_t count);
  // Errors: kOther if a part of the layer has never been written.
  void AwaitOnDevice(int layer);
  void Fetch(int layer);
  void AwaitOnHost(int layer);

  const float* parameters() const { return parameters_->floats(); }
  float* gradients() const { return gradients_->floats(); }

 private:
  // The state of one layer.
  struct Link {
    // The layer's parameters, how many of them were written until the device had them all, and
    // whether it has.
    int64_t elements = 0;
    int64_t written = 0;
    bool is_complete = false;
    CudaEvent on_device;  // follows the newest part
    CudaEvent computed;
    CudaEvent on_host;
  };

  void Upload(int layer, int64_t begin, int64_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CudaDevice* const device_;
  const Model* const model_;
  CudaTimeline* const timeline_;
  const CudaArrayPtr parameters_, gradients_;
  std::vector<int> layer_of_tensor_;

  absl::Span<const float> host_parameters_;
  absl::Span<float> host_gradients_;
  PinnedMemory parameter_lock_, gradient_lock_;

  absl::Mutex mutex_;
  std::vector<Link> links_ ABSL_GUARDED_BY(mutex_);  // by layer
  std::optional<CudaError> failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_TRANSFER_H_
