#ifndef PS_WORKER_COMPUTE_CPU_LINEAR_H_
#define PS_WORKER_COMPUTE_CPU_LINEAR_H_

#include <memory>

#include "common/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Makes a Linear layer, which computes in the plain format. Weights are read, and their gradients
// written, in place: each weight takes part in only one multiplication per image, too few to pay
// for a conversion.
std::unique_ptr<CpuLayer> MakeCpuLinear(CpuDevice* device, const Model& model, const Layer& layer,
                                        Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_LINEAR_H_
