#ifndef PS_WORKER_COMPUTE_CUDA_TRANSFER_H_
#define PS_WORKER_COMPUTE_CUDA_TRANSFER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/model.h"
#include "worker/compute/cuda/device.h"
#include "worker/compute/cuda/error.h"
#include "worker/compute/cuda/memory.h"
#include "worker/compute/cuda/timeline.h"

namespace ps {

// The way of parameters to the device and of gradients from it, between the worker's two buffers,
// page-locked, and the device's, beside what is computed:
//
//   Written        (any thread) a part of the parameters is in the host's buffer: its copy to the
//                  device is queued at once, on a stream of its own.
//   AwaitOnDevice  what is computed next waits for one layer's parameters, and no others.
//   Fetch          the gradients of a layer, when what was queued so far has been computed, are
//                  copied to the host's buffer, on another stream.
//   AwaitOnHost    waits for them there.
//
// A layer's parameters are written whole, part by part, or stay as they are on the device.
// Thread-safe as ComputeBackend asks for it. Throws CudaError.
class CudaTransfer {
 public:
  // All must outlive the transfer.
  CudaTransfer(CudaDevice* device, const Model* model, CudaMemory* memory, CudaTimeline* timeline);

  // When the memory has its place.
  void Prepare();
  // The host's buffers, in the model's layout. They are locked until others are given. Without
  // `gradients` these stay on the device.
  void UseBuffers(absl::Span<const float> parameters, absl::Span<float> gradients);
  bool Uses(absl::Span<const float> parameters) const {
    return parameters.data() == host_parameters_.data();
  }

  bool fetches() const { return !host_gradients_.empty(); }

  // Does not throw: the error is that of the next AwaitOnDevice.
  void Written(int64_t begin, int64_t count);
  // Errors: kOther where a part of the layer has not been written.
  void AwaitOnDevice(int layer);
  void Fetch(int layer);
  void AwaitOnHost(int layer);

  const float* parameters() const { return parameters_->floats(); }
  float* gradients() const { return gradients_->floats(); }

 private:
  // One layer's.
  struct Link {
    int64_t elements = 0;  // of its parameters
    int64_t written = 0;   // of them, since they were last complete
    bool complete = false;
    CudaEvent on_device;
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

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_TRANSFER_H_
