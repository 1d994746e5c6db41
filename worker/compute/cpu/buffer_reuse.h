#ifndef EVENSHARD_WORKER_COMPUTE_CPU_BUFFER_REUSE_H_
#define EVENSHARD_WORKER_COMPUTE_CPU_BUFFER_REUSE_H_

#include <vector>

#include "oneapi/dnnl/dnnl.hpp"
#include "worker/compute/cpu/device.h"

namespace evenshard {

// Allocates memory for handles that are needed only for a part of a pass. `steps` lists the handles
// that each step of the pass uses, in the order of the pass; each was made by
// CpuDevice::Unallocated or is empty. A handle is needed from the first to the last step that lists
// it, and handles that are never needed at the same time may share memory. Returns the allocated
// memory, which the caller must keep as long as the handles are used. Throws dnnl::error.
std::vector<dnnl::memory> AllocateWithReuse(const CpuDevice& device,
                                            const std::vector<std::vector<dnnl::memory>>& steps);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_CPU_BUFFER_REUSE_H_
