#ifndef PS_WORKER_COMPUTE_CPU_LINEAR_H_
#define PS_WORKER_COMPUTE_CPU_LINEAR_H_

#include <memory>

#include "common/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// A Linear layer. It computes in the plain layout: its weights take part in as few
// multiplications as there are images in a batch, too few to pay for a conversion, so
// they are read, and their gradients written, where they are.
std::unique_ptr<CpuLayer> MakeCpuLinear(CpuDevice* device, const Model& model, const Layer& layer,
                                        Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_LINEAR_H_
