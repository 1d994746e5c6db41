#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_LAYER_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_LAYER_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/placement/model/model.h"
#include "worker/compute/cuda/convolution_plan.h"
#include "worker/compute/cuda/device.h"
#include "worker/compute/cuda/memory.h"

namespace evenshard {

// The output of one layer and input of the next, on the device: the values of a batch,
// channels-last, and the gradient of the loss with respect to them in the same layout. A cheap
// handle; copies share the memory.
struct CudaActivation {
  Shape3 shape;  // of one image
  CudaArrayPtr value;
  // Null if no tensor precedes this activation, since its gradient is then never needed.
  CudaArrayPtr gradient;
};

// One pass. The tensors lie at their offsets in the model's buffers, float32 and row-major.
struct CudaPass {
  bool training = false;  // dropout is active, and batch normalisation uses batch statistics
  int64_t iteration = 0;  // selects the dropout mask
  const float* parameters = nullptr;
  float* gradients = nullptr;  // null in evaluation
};

// The objects with which layers are made. All of them must outlive the layers.
struct CudaContext {
  CudaDevice* device = nullptr;
  CudaMemory* memory = nullptr;
  const Model* model = nullptr;
  int64_t images = 0;  // per batch
  // Scratch memory of the size reserved with ReserveScratch. The operations of the compute stream
  // use it in turn.
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

// One layer of a CudaBackend, made for a fixed batch size. The constructor declares the layer's
// memory, and Prepare is called when the memory is allocated. Forward and Backward queue work on
// the compute stream and return. Methods throw CudaError.
//
// The next layer may write its output over this layer's (ReLU and dropout do). Backward may
// therefore read the input's value, but not the value of the layer's own output. A layer that gives
// max(x, 0) is the exception: what dropout leaves of its output suffices for its backward pass.
class CudaLayer {
 public:
  virtual ~CudaLayer() = default;

  const CudaActivation& output() const { return output_; }

  // Makes the layer apply max(x, 0) to its output in the same pass over the memory. Returns false
  // if the layer does not support it. Must be called before Prepare.
  virtual bool FuseRelu() { return false; }

  virtual void Prepare(ConvolutionPlanner* planner) {}

  // Writes output().value from the input's value.
  virtual void Forward(const CudaPass& pass) = 0;

  // Reads output().gradient, which it may overwrite, and writes the gradients of the layer's
  // tensors to their places and, if it exists, the input's gradient. Called after Forward, and only
  // if output().gradient is not null.
  virtual void Backward(const CudaPass& pass) = 0;

  // The gradients with respect to activations that Backward reads or writes. Some may be null.
  virtual std::vector<CudaArrayPtr> gradients() const {
    return {input_.gradient, output_.gradient};
  }

 protected:
  CudaLayer(const CudaContext& context, CudaActivation input)
      : context_(context), input_(std::move(input)) {}
  CudaLayer(const CudaLayer&) = delete;
  CudaLayer& operator=(const CudaLayer&) = delete;

  // Declares the output, and its gradient if that is needed.
  void DeclareOutput(const Shape3& shape, bool has_gradient) {
    output_ = {shape, context_.DeclareValues(shape),
               has_gradient ? context_.DeclareGradients(shape) : nullptr};
  }
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

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_LAYER_H_
