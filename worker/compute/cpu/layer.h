#ifndef PS_WORKER_COMPUTE_CPU_LAYER_H_
#define PS_WORKER_COMPUTE_CPU_LAYER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace ps {

// What one layer hands to the next: the values of a batch {images, channels, height,
// width} in the format that the layer chose, and the gradient of the loss by them in
// the same format. A cheap handle; copies share the memory.
struct Activation {
  dnnl::memory value;
  // Empty where no tensor lies before: nobody needs this gradient. While the layers
  // are being made it has a format and no memory yet: ShareMemory gives it some.
  dnnl::memory gradient;
};

// One forward pass.
struct ForwardPass {
  absl::Span<const float> parameters;  // the whole model's, as Model lays them out
  bool training = false;               // dropout drops, and batch normalisation goes by the batch
  int64_t iteration = 0;               // selects the dropout mask
};

// One layer of a CpuBackend, made for a fixed batch size. Owns its output's value, its
// primitives and their memory. Methods throw dnnl::error.
//
// A layer may write its output over its input (ReLU, dropout), so Backward may read
// the input's value but never the value of the layer's own output, unless it
// gives max(x, 0), of which dropout after it leaves what a backward pass needs.
class CpuLayer {
 public:
  virtual ~CpuLayer() = default;

  const Activation& output() const { return output_; }

  // Writes output().value from the input's value.
  virtual void Forward(const ForwardPass& pass) = 0;

  // After Forward, from output().gradient: writes the gradients of the layer's
  // tensors to their places in `gradients` and, unless it is empty, the input's
  // gradient. Not called where output().gradient is empty.
  virtual void Backward(absl::Span<const float> parameters, absl::Span<float> gradients) = 0;

  // The gradients by activations that Backward reads or writes; some may be empty.
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

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_LAYER_H_
