#ifndef PS_WORKER_COMPUTE_CUDA_LINEAR_H_
#define PS_WORKER_COMPUTE_CUDA_LINEAR_H_

#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

// REQUIRES: the input is [images, features]; see MakeCudaFlatten.
std::unique_ptr<CudaLayer> MakeCudaLinear(const CudaContext& context, const Layer& layer,
                                          CudaActivation input);

// Turns channels-last values into [images, features] in the order channels, rows, columns, as the
// weights of linear layers and the scores of a model have it.
std::unique_ptr<CudaLayer> MakeCudaFlatten(const CudaContext& context, CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_LINEAR_H_
