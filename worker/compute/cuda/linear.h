#ifndef PS_WORKER_COMPUTE_CUDA_LINEAR_H_
#define PS_WORKER_COMPUTE_CUDA_LINEAR_H_

#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

// Makes a Linear layer. REQUIRES: the input is [images, features]; see MakeCudaFlatten.
std::unique_ptr<CudaLayer> MakeCudaLinear(const CudaContext& context, const Layer& layer,
                                          CudaActivation input);

// Makes a layer that turns channels-last values into [images, features] in the order channels,
// rows, columns, which the weights of linear layers and the scores of a model have.
std::unique_ptr<CudaLayer> MakeCudaFlatten(const CudaContext& context, CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_LINEAR_H_
