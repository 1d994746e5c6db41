#include "worker/compute/cpu/buffer_reuse.h"

#include <algorithm>
#include <cstddef>

#include "worker/compute/buffer_reuse.h"

namespace evenshard {

using dnnl::memory;

std::vector<memory> AllocateWithReuse(const CpuDevice& device,
                                      const std::vector<std::vector<memory>>& steps) {
  std::vector<memory> handles;  // in the order of their first steps
  std::vector<BufferUse> uses;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const memory& handle : steps[step]) {
      if (!handle) continue;
      const size_t known = std::find(handles.begin(), handles.end(), handle) - handles.begin();
      if (known == handles.size()) {
        handles.push_back(handle);
        uses.push_back({handle.get_desc().get_size(), step, step});
      }
      uses[known].last = step;
    }
  }
  const ReusedBuffers buffers = AssignBuffers(uses);
  std::vector<memory> owned;
  for (const size_t bytes : buffers.bytes) owned.push_back(device.Allocate(Bytes(bytes)));
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i].set_data_handle(owned[buffers.buffer_of_use[i]].get_data_handle());
  }
  return owned;
}

}  // namespace evenshard
