#ifndef PS_WORKER_COMPUTE_CUDA_LAYER_H_
#define PS_WORKER_COMPUTE_CUDA_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/model.h"
#include "worker/compute/cuda/convolution_plan.h"
#include "worker/compute/cuda/device.h"
#include "worker/compute/cuda/memory.h"

namespace ps {

// What one layer hands to the next on the device: the values of a batch, channels-last, and the
// gradient of the loss by them in the same layout. A cheap handle; copies share the memory.
struct CudaActivation {
  Shape3 shape;  // of one image
  CudaArrayPtr value;
  // Null where no tensor lies before: nobody needs this gradient.
  CudaArrayPtr gradient;
};

// One pass. Tensors are where the model's buffer has them, float32 and row-major.
struct CudaPass {
  bool training = false;  // dropout drops, and batch normalisation goes by the batch
  int64_t iteration = 0;  // selects the dropout mask
  const float* parameters = nullptr;
  float* gradients = nullptr;  // null in evaluation
};

// What layers are made with. All must outlive them.
struct CudaContext {
  CudaDevice* device = nullptr;
  CudaMemory* memory = nullptr;
  const Model* model = nullptr;
  int64_t images = 0;  // in a batch
  // Memory that one operation of the compute stream after the other uses: ReserveScratch.
  CudaArrayPtr scratch = {};

  ElementType type() const { return device->type(); }
  cudaStream_t stream() const { return device->compute(); }
  void ReserveScratch(size_t bytes) const { scratch->bytes = std::max(scratch->bytes, bytes); }
  CudaArrayPtr DeclareValues(const Shape3& shape) const {
    return memory->Declare(images * shape.size() * BytesOf(type()));
  }
  CudaArrayPtr DeclareGradients(const Shape3& shape) const {
    return CudaMemory::DeclareShared(images * shape.size() * BytesOf(type()));
  }
};

// One layer of a CudaBackend, made for a fixed batch size. It declares its memory when it is
// made; Prepare comes when it has its place. Forward and Backward queue work on the compute stream
// and return. Methods throw CudaError.
//
// A layer may write its output over its input (ReLU, dropout), so Backward may read the input's
// value but never the value of the layer's own output, unless it gives max(x, 0), of which dropout
// after it leaves what a backward pass needs.
class CudaLayer {
 public:
  virtual ~CudaLayer() = default;

  const CudaActivation& output() const { return output_; }

  // Lets the layer give max(x, 0) of what it gave, where it can do so in the same pass over the
  // memory; false where it cannot. Before Prepare.
  virtual bool FuseRelu() { return false; }

  virtual void Prepare(ConvolutionPlanner* planner) {}

  // Writes output().value from the input's value.
  virtual void Forward(const CudaPass& pass) = 0;

  // After Forward, from output().gradient, which it may overwrite: writes the gradients of the
  // layer's tensors to their places and, unless it is null, the input's gradient. Not called where
  // output().gradient is null.
  virtual void Backward(const CudaPass& pass) = 0;

  // The gradients by activations that Backward reads or writes.
  virtual std::vector<CudaArrayPtr> gradients() const {
    return {input_.gradient, output_.gradient};
  }

 protected:
  CudaLayer(const CudaContext& context, CudaActivation input)
      : context_(context), input_(std::move(input)) {}
  CudaLayer(const CudaLayer&) = delete;
  CudaLayer& operator=(const CudaLayer&) = delete;

  int64_t RowsOf(const CudaActivation& activation) const {
    return context_.images * activation.shape.height * activation.shape.width;
  }
  Planes PlanesOf(const CudaActivation& activation) const {
    return {context_.images, activation.shape.channels,
            activation.shape.height * activation.shape.width};
  }

  const CudaContext& context_;
  const CudaActivation input_;
  CudaActivation output_;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_LAYER_H_
