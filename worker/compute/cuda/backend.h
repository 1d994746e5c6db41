#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_BACKEND_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_BACKEND_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/compute/backend_options.h"
#include "worker/compute/cuda/convolution_plan.h"
#include "worker/compute/cuda/device.h"
#include "worker/compute/cuda/layer.h"
#include "worker/compute/cuda/memory.h"
#include "worker/compute/cuda/timeline.h"
#include "worker/compute/cuda/transfer.h"
#include "worker/compute/layer_graph.h"

namespace evenshard {

// Computes on an NVIDIA device. cuDNN runs the convolutions, cuBLAS the matrix products, and the
// kernels of worker/compute/cuda/kernels.h everything in between. All plans and all memory are made
// at creation, for one batch size. A smaller batch is filled up with empty images, which have no
// effect on the result.
//
// ForwardBackward queues the whole pass. On the device, each layer waits for its own parameters
// only (see CudaTransfer), and its gradients are copied to the host as soon as they are computed.
// The calling thread then waits for these copies, back layers first, and calls the hooks for each
// layer.
//
// UseBuffers must be called before the first pass. A pass reads the parameters of which
// ParametersWritten has been called. Not thread-safe, except for ParametersWritten and Usage.
class CudaBackend : public ComputeBackend {
 public:
  struct Options {
    int64_t batch_size = 1;
    CudaDevice::Options device = {};
    uint64_t seed = 1;  // selects the dropout masks, together with `rank`
    int rank = 0;
    Trace* trace = nullptr;  // null for no trace; must outlive the backend
  };

  // Errors: INVALID_ARGUMENT for a batch size below 1 or too small for the model (see
  // CheckBatchSize); FAILED_PRECONDITION if the device does not exist, or if the device, its driver
  // or cuDNN is too old; RESOURCE_EXHAUSTED with the amounts of memory that are needed and free;
  // INTERNAL with the library's message.
  static absl::StatusOr<std::unique_ptr<CudaBackend>> Create(const Model& model,
                                                             const Options& options);
  ~CudaBackend() override;

  absl::Status UseBuffers(const HostBuffers& buffers) override;
  void ParametersWritten(int64_t begin, int64_t count) override;
  void Prefetch(const Batch& next) override;

  // Errors, in addition to those of ComputeBackend: UNAVAILABLE if the device was lost.
  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override;
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                       absl::Span<const float> parameters) override;
  std::optional<DeviceUsage> Usage() const override;

 private:
  // A step of the model's graph, or a flatten. A ReLU that the layer before it took over is no
  // step.
  struct Step {
    GraphStep graph;
    std::string name;  // names the step in errors
    std::unique_ptr<CudaLayer> operation;
  };

  CudaBackend(const Model& model, const Options& options);
  void MakeSteps();
  void Prepare();

  bool HasTensors(const Step& step) const;
  absl::Status CheckBuffers(absl::Span<const float> parameters) const;
  // The parts of a pass. All but TellGradients and Collect only queue work.
  // Returns the index in batches_ of the place that holds the batch.
  size_t QueueImages(const Batch& batch);
  void Upload(const Batch& batch, size_t place);
  absl::Status QueueForward(const CudaPass& pass, LayerHooks& hooks);
  void QueueLoss(const Batch& batch, size_t place, bool training);
  void QueueBackward(const CudaPass& pass);
  absl::Status TellGradients(LayerHooks& hooks);
  BatchResult Collect(const Batch& batch);
  // Runs a pass. Errors name the step that queued the work. After an error, waits until no work of
  // the pass is left on the device.
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
  std::string where_;        // names the layer that is being queued in errors

  // A batch on the device.
  struct DeviceBatch {
    CudaArrayPtr images;  // in the host's layout
    CudaArrayPtr labels;  // int32
    PinnedMemory host_labels;
    CudaEvent arrived;
  };
  std::array<DeviceBatch, 2> batches_;
  // The images of the prefetched batch, empty if there is none, and the batch's place. Without a
  // prefetched batch it is the place of the last training pass.
  absl::Span<const float> prefetched_;
  size_t prefetched_place_ = 0;
  absl::Status prefetch_failure_;

  CudaArrayPtr images_;  // of the current batch, channels-last
  CudaArrayPtr losses_;  // array of ImageLoss
  PinnedMemory host_losses_;
  CudaEvent losses_computed_, losses_on_host_;
  std::vector<PinnedMemory> image_locks_;
};

// Creates a CudaBackend as the config's `compute.cuda` asks for. The worker's rank selects one of
// the configured devices, or one of all devices. Errors: those of CudaBackend::Create.
absl::StatusOr<std::unique_ptr<ComputeBackend>> CudaBackendFromConfig(
    const PlannedConfig& config, const BackendOptions& options);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_BACKEND_H_
