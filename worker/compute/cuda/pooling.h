#ifndef PS_WORKER_COMPUTE_CUDA_POOLING_H_
#define PS_WORKER_COMPUTE_CUDA_POOLING_H_

#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

// Makes a MaxPool2d or GlobalAvgPool layer. If several values in a window are the largest, the
// first one receives the gradient.
std::unique_ptr<CudaLayer> MakeCudaPooling(const CudaContext& context, const Layer& layer,
                                           CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_POOLING_H_
