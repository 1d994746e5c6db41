#ifndef PS_WORKER_COMPUTE_CUDA_CONVOLUTION_H_
#define PS_WORKER_COMPUTE_CUDA_CONVOLUTION_H_

#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

std::unique_ptr<CudaLayer> MakeCudaConvolution(const CudaContext& context, const Layer& layer,
                                               CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_CONVOLUTION_H_
