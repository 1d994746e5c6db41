#ifndef PS_WORKER_COMPUTE_CPU_POOLING_H_
#define PS_WORKER_COMPUTE_CPU_POOLING_H_

#include <memory>

#include "common/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Makes a MaxPool2d or GlobalAvgPool layer. If several values in a window are the largest, the
// first one receives the gradient.
std::unique_ptr<CpuLayer> MakeCpuPooling(CpuDevice* device, const Layer& layer, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_POOLING_H_
