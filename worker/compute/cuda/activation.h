#ifndef PS_WORKER_COMPUTE_CUDA_ACTIVATION_H_
#define PS_WORKER_COMPUTE_CUDA_ACTIVATION_H_

#include <cstdint>
#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

// Both work in place: the output is the input's memory.

// Where no layer before it took it over: see CudaLayer::FuseRelu.
std::unique_ptr<CudaLayer> MakeCudaRelu(const CudaContext& context, CudaActivation input);

// The same masks as the CPU backend's for equal seed, rank and iteration.
std::unique_ptr<CudaLayer> MakeCudaDropout(const CudaContext& context, const Layer& layer,
                                           uint64_t seed, int rank, CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_ACTIVATION_H_
