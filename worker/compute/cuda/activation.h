#ifndef PS_WORKER_COMPUTE_CUDA_ACTIVATION_H_
#define PS_WORKER_COMPUTE_CUDA_ACTIVATION_H_

#include <cstdint>
#include <memory>

#include "worker/compute/cuda/layer.h"

namespace ps {

// Both layers work in place: the output shares the input's memory.

// Makes a Relu layer. It is needed only if the preceding layer did not take the ReLU over (see
// CudaLayer::FuseRelu).
std::unique_ptr<CudaLayer> MakeCudaRelu(const CudaContext& context, CudaActivation input);

// Makes a Dropout layer. Its masks equal the CPU backend's for the same seed, rank and iteration.
std::unique_ptr<CudaLayer> MakeCudaDropout(const CudaContext& context, const Layer& layer,
                                           uint64_t seed, int rank, CudaActivation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CUDA_ACTIVATION_H_
