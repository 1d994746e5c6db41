#ifndef PS_WORKER_COMPUTE_CPU_DROPOUT_H_
#define PS_WORKER_COMPUTE_CPU_DROPOUT_H_

#include <cstdint>
#include <memory>

#include "common/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// A Dropout layer, in place: in training each value is dropped with probability p, the
// rest are scaled by 1 / (1 - p). Whether a value is dropped is a pure function of
// (seed, rank, layer name, iteration, image in the batch, element in channel, height,
// width order), whatever the format, the batch size or the number of threads.
std::unique_ptr<CpuLayer> MakeCpuDropout(CpuDevice* device, const Layer& layer, uint64_t seed,
                                         int rank, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_DROPOUT_H_
