#ifndef EVENSHARD_WORKER_COMPUTE_CPU_LAYER_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_LAYER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace evenshard {

// The output of one layer and input of the next: the values of a batch {images, channels, height,
// width} in the format that the layer chose, and the gradient of the loss with respect to them in
// the same format. A cheap handle; copies share the memory.
struct Activation {
  dnnl::memory value;
  // Empty if no tensor precedes this activation, since its gradient is then never needed. While the
  // layers are being made, the gradient has a format but no memory; CpuBackend assigns the memory.
  dnnl::memory gradient;
};

// One forward pass.
struct ForwardPass {
  absl::Span<const float> parameters;  // the whole model's, as Model lays them out
  bool training = false;  // dropout is active, and batch normalisation uses batch statistics
  int64_t iteration = 0;  // selects the dropout mask
};

// One layer of a CpuBackend, made for a fixed batch size. It owns its output's value, its
// primitives and their memory. Methods throw dnnl::error.
//
// The next layer may write its output over this layer's (ReLU and dropout do). Backward may
// therefore read the input's value, but not the value of the layer's own output. A layer that gives
// max(x, 0) is the exception: what dropout leaves of its output suffices for its backward pass.
class CpuLayer {
 public:
  virtual ~CpuLayer() = default;

  const Activation& output() const { return output_; }

  // Writes output().value from the input's value.
  virtual void Forward(const ForwardPass& pass) = 0;

  // Reads output().gradient and writes the gradients of the layer's tensors to their places in
  // `gradients` and, if it exists, the input's gradient. Called after Forward, and only if
  // output().gradient exists.
  virtual void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) = 0;

  // The gradients with respect to activations that Backward reads or writes. Some may be empty.
  virtual std::vector<dnnl::memory> gradients() const {
    return {input_.gradient, output_.gradient};
  }

 protected:
  explicit CpuLayer(Activation input) : input_(std::move(input)) {}
  CpuLayer(const CpuLayer&) = delete;
  CpuLayer& operator=(const CpuLayer&) = delete;

  const Activation input_;
  Activation output_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_LAYER_H_
