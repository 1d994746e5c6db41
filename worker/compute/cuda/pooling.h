#ifndef PS_WORKER_COMPUTE_CUDA_POOLING_H_
#define PS_WORKER_COMPUTE_CUDA_POOLING_H_

#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

// Max pooling, where of equal maxima the first gets the gradient, and global average pooling.
std::unique_ptr<CudaLayer> MakeCudaPooling(const CudaContext& context, const Layer& layer,
                                           CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_POOLING_H_
