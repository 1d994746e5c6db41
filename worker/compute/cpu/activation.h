#ifndef PS_WORKER_COMPUTE_CPU_ACTIVATION_H_
#define PS_WORKER_COMPUTE_CPU_ACTIVATION_H_

#include <memory>

#include "common/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Makes a Relu layer, which works in place. Its derivative at 0 is 0.
std::unique_ptr<CpuLayer> MakeCpuRelu(CpuDevice* device, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_ACTIVATION_H_
