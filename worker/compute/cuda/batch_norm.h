#ifndef PS_WORKER_COMPUTE_CUDA_BATCH_NORM_H_
#define PS_WORKER_COMPUTE_CUDA_BATCH_NORM_H_

#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

std::unique_ptr<CudaLayer> MakeCudaBatchNorm(const CudaContext& context, const Layer& layer,
                                             CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_BATCH_NORM_H_
