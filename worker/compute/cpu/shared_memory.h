#ifndef PS_WORKER_COMPUTE_CPU_SHARED_MEMORY_H_
#define PS_WORKER_COMPUTE_CPU_SHARED_MEMORY_H_

#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "worker/compute/cpu/device.h"

namespace ps {

// Gives memory to what is needed only for a while. `steps`: what each step of a pass touches, in
// the order of the pass, made by CpuDevice::Unallocated or empty; a handle in several steps is
// needed from the first to the last of them. Those never needed at once may share memory.
// Returns what was allocated, to be kept as long as the handles are used. Throws dnnl::error.
std::vector<dnnl::memory> ShareMemory(const CpuDevice& device,
                                      const std::vector<std::vector<dnnl::memory>>& steps);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_CPU_SHARED_MEMORY_H_
