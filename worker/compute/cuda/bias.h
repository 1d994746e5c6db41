#ifndef PS_WORKER_COMPUTE_CUDA_BIAS_H_
#define PS_WORKER_COMPUTE_CUDA_BIAS_H_

#include <cstdint>

#include "worker/compute/cuda/layer.h"

namespace ps {

// What a convolution or linear layer does with its products: adds the bias, if it has one, and
// takes max(x, 0), if it was told to. Both in one pass over the memory, as is the reverse.
class Bias {
 public:
  // `tensor`: the bias, or null for none. `output` must have a value, and may have a gradient.
  Bias(const CudaContext& context, const Tensor* tensor, const CudaActivation& output);

  void FuseRelu() { relu_ = true; }
  void Forward(const CudaPass& pass) const;
  // Leaves in the output's gradient that by the products.
  void Backward(const CudaPass& pass) const;

 private:
  const CudaContext& context_;
  const CudaActivation output_;
  const int64_t rows_;
  const Tensor* const tensor_;
  bool relu_ = false;
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_BIAS_H_
