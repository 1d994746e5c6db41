#ifndef EVENSHARD_WORKER_COMPUTE_CPU_BACKEND_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/placement/model/model.h"
#include "worker/compute/backend.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace evenshard {

// Computes on the CPU with oneDNN. All primitives and all memory are made at creation, for one
// batch size. A smaller batch is filled up with empty images, which have no effect on the result.
// Equal inputs and equal `threads` on one machine give bit-identical results.
//
// ForwardBackward runs over the layers in order, then in reverse. A layer reads its tensors in its
// own Forward and Backward, and has written its tensors' gradients when its Backward returns. A
// model with batch normalisation is trained on full batches only.
//
// Not thread-safe, but not tied to one thread.
class CpuBackend : public ComputeBackend {
 public:
  struct Options {
    int64_t batch_size = 1;
    int threads = 1;    // at least 1
    uint64_t seed = 1;  // selects the dropout masks, together with `rank`
    int rank = 0;
  };

  // Errors: INVALID_ARGUMENT for options below 1, or a batch size that is too small for the model
  // (see CheckBatchSize); RESOURCE_EXHAUSTED if memory does not suffice; INTERNAL with oneDNN's
  // message.
  static absl::StatusOr<std::unique_ptr<CpuBackend>> Create(const Model& model,
                                                            const Options& options);

  absl::StatusOr<BatchResult> ForwardBackward(const Batch& batch,
                                              absl::Span<const float> parameters, int64_t iteration,
                                              absl::Span<float> gradients,
                                              LayerHooks& hooks) override;
  absl::StatusOr<BatchResult> Evaluate(const Batch& batch,
                                       absl::Span<const float> parameters) override;

 private:
  CpuBackend(const Model& model, const Options& options);

  // A layer of the model, or a fork of a layer's output.
  struct Node {
    int layer = kImages;
    bool fork = false;
    std::unique_ptr<CpuLayer> operation;
  };

  absl::Status MakeLayers();
  void MakeLoss();
  bool HasTensors(const Node& node) const;
  // Runs one operation of the node. Errors name the node's layer.
  absl::Status RunNode(const Node& node, absl::FunctionRef<void()> step) const;

  // The three parts of a pass. RunLoss also writes the gradient with respect to the scores if
  // `pass` is a training pass.
  absl::Status RunForward(const Batch& batch, const ForwardPass& pass, LayerHooks& hooks);
  absl::StatusOr<BatchResult> RunLoss(const Batch& batch, const ForwardPass& pass);
  absl::Status RunBackward(absl::Span<const float> parameters, absl::Span<float> gradients,
                           LayerHooks& hooks);

  // Constant after construction.
  const Model model_;
  const Options options_;

  CpuDevice device_;
  dnnl::memory images_;      // in the plain format
  std::vector<Node> nodes_;  // in the order of the forward pass; the last one gives the scores
  // Backs the gradients with respect to the activations.
  std::vector<dnnl::memory> gradient_memory_;

  // The last layer's scores, and the gradient with respect to them, in the plain format.
  std::optional<ConvertedSource> scores_;
  std::optional<ConvertedDestination> score_gradients_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_BACKEND_H_
