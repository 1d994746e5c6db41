#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_BIAS_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_BIAS_H_

#include <cstdint>

#include "worker/compute/cuda/layer.h"

namespace evenshard {

// The last part of a convolution or linear layer: adds the bias, if the layer has one, and takes
// max(x, 0), if FuseRelu was called. Both happen in one pass over the memory, and so does their
// backward pass.
class Bias {
 public:
  // `tensor` is the bias, or null for none. `output` must have a value, and may have a gradient.
  Bias(const CudaContext& context, const Tensor* tensor, const CudaActivation& output);

  void FuseRelu() { relu_ = true; }
  void Forward(const CudaPass& pass) const;
  // Replaces the output's gradient by the gradient with respect to the products.
  void Backward(const CudaPass& pass) const;

 private:
  const CudaContext& context_;
  const CudaActivation output_;
  const int64_t rows_;
  const Tensor* const tensor_;
  bool relu_ = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_BIAS_H_
