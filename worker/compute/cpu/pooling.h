#ifndef PS_WORKER_COMPUTE_CPU_POOLING_H_
#define PS_WORKER_COMPUTE_CPU_POOLING_H_

#include <memory>

#include "common/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// A MaxPool2d or GlobalAvgPool layer. Where the largest values in a window are equal, the first
// gets the gradient.
std::unique_ptr<CpuLayer> MakeCpuPooling(CpuDevice* device, const Layer& layer, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_POOLING_H_
