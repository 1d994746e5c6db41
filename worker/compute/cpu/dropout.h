#ifndef PS_WORKER_COMPUTE_CPU_DROPOUT_H_
#define PS_WORKER_COMPUTE_CPU_DROPOUT_H_

#include <cstdint>
#include <memory>

#include "common/model/model.h"
#include "worker/compute/cpu/device.h"
#include "worker/compute/cpu/layer.h"

namespace ps {

// Makes a Dropout layer, which works in place. In training it sets each value to 0 with probability
// p and multiplies the others by 1 / (1 - p). Whether a value is dropped is a pure function of
// (seed, rank, layer name, iteration, image in the batch, element in the order channel, height,
// width). It does not depend on the memory format, the batch size or the number of threads.
std::unique_ptr<CpuLayer> MakeCpuDropout(CpuDevice* device, const Layer& layer, uint64_t seed,
                                         int rank, Activation input);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_DROPOUT_H_
