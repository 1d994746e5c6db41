#ifndef PS_WORKER_COMPUTE_CPU_CONVOLUTION_H_
#define PS_WORKER_COMPUTE_CPU_CONVOLUTION_H_

#include <memory>

#include "common/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// A Conv2d layer. oneDNN chooses the formats of activations and weights; weights are
// converted from, and their gradients to, the plain layout.
std::unique_ptr<CpuLayer> MakeCpuConvolution(CpuDevice* device, const Model& model,
                                             const Layer& layer, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_CONVOLUTION_H_
