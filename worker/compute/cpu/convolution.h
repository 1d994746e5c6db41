#ifndef PS_WORKER_COMPUTE_CPU_CONVOLUTION_H_
#define PS_WORKER_COMPUTE_CPU_CONVOLUTION_H_

#include <memory>

#include "common/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Makes a Conv2d layer. oneDNN chooses the formats of activations and weights. Weights are
// converted from the plain format, and their gradients to it.
std::unique_ptr<CpuLayer> MakeCpuConvolution(CpuDevice* device, const Model& model,
                                             const Layer& layer, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_CONVOLUTION_H_
