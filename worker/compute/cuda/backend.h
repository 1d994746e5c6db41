#ifndef PS_WORKER_COMPUTE_CUDA_BACKEND_H_
#define PS_WORKER_COMPUTE_CUDA_BACKEND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/model.h"
#include "worker/compute/backend.h"
#include "worker/compute/cuda/convolution_plan.h"
#include "worker/compute/cuda/device.h"
#include "worker/compute/cuda/kernels.h"
#include "worker/compute/cuda/layer.h"
#include "worker/compute/cuda/memory.h"
#include "worker/compute/cuda/timeline.h"
#include "worker/compute/cuda/transfer.h"
#include "worker/compute/layer_graph.h"

namespace ps {

// Computes on an NVIDIA device: convolutions with cuDNN, matrix products with cuBLAS, what lies
// between them with worker/compute/cuda/kernels.h. All plans and all memory are made at creation,
// for one batch size; a smaller batch is filled up with empty images that count for nothing.
//
// ForwardBackward queues the whole pass: each layer waits, on the device, for its own parameters
// (CudaTransfer), and its gradients are copied back as soon as they are computed. Then it waits
// for them layer by layer, back layers first, and tells the hooks of each.
//
// Passes read the parameters that ParametersWritten has told of, in the buffers of UseBuffers,
// which must be called first. Not thread-safe but for ParametersWritten and Usage.
class CudaBackend : public ComputeBackend {
 public:
  struct Options {
    int64_t batch_size = 1;
    CudaDevice::Options device = {};
    uint64_t seed = 1;  // with rank: of the dropout masks
    int rank = 0;
    Trace* trace = nullptr;  // null: none is kept; must outlive the backend
  };

  // Errors: INVALID_ARGUMENT for a batch size below 1 or too small for the model (CheckBatchSize);
  // FAILED_PRECONDITION where the device, its driver or cuDNN will not do; RESOURCE_EXHAUSTED with
  // the memory that is needed and free; INTERNAL with the library's message.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const Model& model,
                                                             const Options& options);
  ~CudaBackend() override;

  absl::Status UseBuffers(const HostBuffers& buffers) override;
  void ParametersWritten(int64_t begin, int64_t count) override;
  void Prefetch(const Batch& next) override;

  // Errors, beside those of ComputeBackend: UNAVAILABLE where the device was lost.
  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override;
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                       absl::Span<const float> parameters) override;
  std::optional<DeviceUsage> Usage() const override;

 private:
  // A step of the model's graph, but for a ReLU that the layer before it took over; or a flatten.
  struct Step {
    GraphStep graph;
    std::string name;  // in errors
    std::unique_ptr<CudaLayer> operation;
  };

  CudaBackend(const Model& model, const Options& options);
  void MakeSteps();
  void Prepare();

  bool HasTensors(const Step& step) const;
  absl::Status CheckBuffers(absl::Span<const float> parameters) const;
  // The parts of a pass. All but Collect only queue.
  // Returns which of batches_ it is in.
  size_t QueueImages(const Batch& batch);
  void Upload(const Batch& batch, size_t place);
  absl::Status QueueForward(const CudaPass& pass, LayerHooks& hooks);
  void QueueLoss(const Batch& batch, size_t place, bool training);
  void QueueBackward(const CudaPass& pass);
  absl::Status TellGradients(LayerHooks& hooks);
  BatchResult Collect(const Batch& batch);
  // Runs a pass; errors name the step that queued. Nothing of it goes on after an error.
  absl::Status Run(absl::FunctionRef<absl::Status()> pass);

  // Constant after construction.
  const Model model_;
  const Options options_;

  CudaDevice device_;
  CudaMemory memory_;
  CudaTimeline timeline_;
  CudaTransfer transfer_;
  CudaContext context_;
  std::vector<Step> steps_;  // in the order of the forward pass; the last one gives the scores
  std::string where_;        // the layer that is being queued, for errors

  // A batch on the device.
  struct DeviceBatch {
    CudaArrayPtr images;  // as the host has them
    CudaArrayPtr labels;  // int32
    PinnedMemory host_labels;
    CudaEvent arrived;
  };
  std::array<DeviceBatch, 2> batches_;
  // The images of the batch that has been fetched ahead, or none, and its place; of none, that of
  // the last pass.
  absl::Span<const float> prefetched_;
  size_t prefetched_place_ = 0;
  absl::Status prefetch_failure_;

  CudaArrayPtr images_;  // channels-last
  CudaArrayPtr losses_;  // ImageLoss
  PinnedMemory host_losses_;
  CudaEvent losses_computed_, losses_on_host_;
  std::vector<PinnedMemory> image_locks_;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_BACKEND_H_
