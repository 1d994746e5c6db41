#ifndef PS_WORKER_COMPUTE_CPU_BACKEND_H_
#define PS_WORKER_COMPUTE_CPU_BACKEND_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/model.h"
#include "worker/compute/backend.h"
#include "worker/compute/cpu_device.h"
#include "worker/compute/cpu_layer.h"

namespace ps {

// Computes on the processor with oneDNN. All primitives and all memory are made at
// creation, for one batch size; a smaller batch is filled up with empty images that
// count for nothing. Equal inputs and equal `threads` on one machine give equal bits.
//
// ForwardBackward runs over the layers in order, then in reverse. A layer reads its
// tensors in its own Forward and Backward, and has written its tensors' gradients when
// its Backward returns.
//
// Not thread-safe, but bound to no thread.
class CpuBackend : public ComputeBackend {
 public:
  struct Options {
    int64_t batch_size = 1;
    int threads = 1;    // at least 1
    uint64_t seed = 1;  // with rank: of the dropout masks
    int rank = 0;
  };

  // Errors: UNIMPLEMENTED for a layer that it cannot train, by name; INVALID_ARGUMENT
  // for options below 1; RESOURCE_EXHAUSTED where memory does not suffice; INTERNAL with
  // oneDNN's message.
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

  absl::Status MakeLayers();
  void MakeLoss();
  void AllocateActivationGradients();

  absl::Status Check(const Batch& batch, absl::Span<const float> parameters) const;
  // The three parts of a step. The loss part writes the gradient by the scores too
  // where `pass` is of training.
  absl::Status RunForward(const Batch& batch, const ForwardPass& pass, LayerHooks& hooks);
  absl::StatusOr<BatchResult> RunLoss(const Batch& batch, const ForwardPass& pass);
  absl::Status RunBackward(absl::Span<const float> parameters, absl::Span<float> gradients,
                           LayerHooks& hooks);

  // Constant after construction.
  const Model model_;
  const Options options_;

  CpuDevice device_;
  dnnl::memory images_;  // plain
  std::vector<std::unique_ptr<CpuLayer>> layers_;
  std::array<dnnl::memory, 2> activation_gradients_;  // see AllocateActivationGradients

  // The scores of the last layer, and the gradients by them, in the plain layout.
  std::optional<ConvertedSource> scores_;
  std::optional<ConvertedDestination> score_gradients_;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_BACKEND_H_
