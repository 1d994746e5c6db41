#ifndef EVENSHARD_WORKER_COMPUTE_CPU_LAYERS_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_LAYERS_H_

#include <cstdint>
#include <memory>

#include "common/placement/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace evenshard {

// Makes a Relu layer, which works in place. Its derivative at 0 is 0.
std::unique_ptr<CpuLayer> MakeCpuRelu(CpuDevice* device, Activation input);

// Makes the backward pass of max(x, 0), which reads the result (DNNL_ARG_DST) instead of x. `desc`
// is the format of all its arguments.
CpuOperation MakeCpuReluGradient(CpuDevice* device, const dnnl::memory::desc& desc);

// Makes a batch normalisation layer (Ioffe and Szegedy 2015). Training normalises with the mean and
// variance of the batch, evaluation with the running statistics, which are stored among the
// parameters.
std::unique_ptr<CpuLayer> MakeCpuBatchNorm(CpuDevice* device, const Model& model,
                                           const Layer& layer, Activation input);

// Makes a Conv2d layer. oneDNN chooses the formats of activations and weights. Weights are
// converted from the plain format, and their gradients to it.
std::unique_ptr<CpuLayer> MakeCpuConvolution(CpuDevice* device, const Model& model,
                                             const Layer& layer, Activation input);

// Makes a Dropout layer, which works in place. In training it sets each value to 0 with probability
// p and multiplies the others by 1 / (1 - p). Whether a value is dropped is a pure function of
// (seed, rank, layer name, iteration, image in the batch, element in the order channel, height,
// width). It does not depend on the memory format, the batch size or the number of threads.
std::unique_ptr<CpuLayer> MakeCpuDropout(CpuDevice* device, const Layer& layer, uint64_t seed,
                                         int rank, Activation input);

// Makes a Linear layer, which computes in the plain format. Weights are read, and their gradients
// written, in place: each weight takes part in only one multiplication per image, too few to pay
// for a conversion.
std::unique_ptr<CpuLayer> MakeCpuLinear(CpuDevice* device, const Model& model, const Layer& layer,
                                        Activation input);

// Makes a MaxPool2d or GlobalAvgPool layer. If several values in a window are the largest, the
// first one receives the gradient. A window with a NaN gives NaN, and NaN counts as infinity when
// the gradient is passed back.
std::unique_ptr<CpuLayer> MakeCpuPooling(CpuDevice* device, const Layer& layer, Activation input);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_LAYERS_H_
