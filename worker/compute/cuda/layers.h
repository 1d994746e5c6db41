#ifndef EVENSHARD_WORKER_COMPUTE_CUDA_LAYERS_H_
#define EVENSHARD_WORKER_COMPUTE_CUDA_LAYERS_H_

#include <cstdint>
#include <memory>

#include "worker/compute/cuda/layer.h"

namespace evenshard {

// Makes a Relu layer, which works in place: the output shares the input's memory. It is needed only
// if the preceding layer did not take the ReLU over (see CudaLayer::FuseRelu).
std::unique_ptr<CudaLayer> MakeCudaRelu(const CudaContext& context, CudaActivation input);

// Makes a Dropout layer, which works in place. Its masks equal the CPU backend's for the same seed,
// rank and iteration.
std::unique_ptr<CudaLayer> MakeCudaDropout(const CudaContext& context, const Layer& layer,
                                           uint64_t seed, int rank, CudaActivation input);

// Makes a batch normalisation layer (Ioffe and Szegedy 2015).
std::unique_ptr<CudaLayer> MakeCudaBatchNorm(const CudaContext& context, const Layer& layer,
                                             CudaActivation input);

// Makes a Conv2d layer.
std::unique_ptr<CudaLayer> MakeCudaConvolution(const CudaContext& context, const Layer& layer,
                                               CudaActivation input);

// Makes a Linear layer. REQUIRES: the input is [images, features]; see MakeCudaFlatten.
std::unique_ptr<CudaLayer> MakeCudaLinear(const CudaContext& context, const Layer& layer,
                                          CudaActivation input);

// Makes a layer that turns channels-last values into [images, features] in the order channels,
// rows, columns, which the weights of linear layers and the scores of a model have.
std::unique_ptr<CudaLayer> MakeCudaFlatten(const CudaContext& context, CudaActivation input);

// Makes a MaxPool2d or GlobalAvgPool layer. If several values in a window are the largest, the
// first one receives the gradient.
std::unique_ptr<CudaLayer> MakeCudaPooling(const CudaContext& context, const Layer& layer,
                                           CudaActivation input);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CUDA_LAYERS_H_
