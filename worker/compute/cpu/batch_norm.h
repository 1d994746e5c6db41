#ifndef PS_WORKER_COMPUTE_CPU_BATCH_NORM_H_
#define PS_WORKER_COMPUTE_CPU_BATCH_NORM_H_

#include <memory>

#include "common/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Makes a batch normalisation layer (Ioffe and Szegedy 2015). Training normalises with the mean and
// variance of the batch, evaluation with the running statistics, which are stored among the
// parameters.
std::unique_ptr<CpuLayer> MakeCpuBatchNorm(CpuDevice* device, const Model& model,
                                           const Layer& layer, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_BATCH_NORM_H_
