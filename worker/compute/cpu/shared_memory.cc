#include "worker/compute/cpu/shared_memory.h"

#include <algorithm>
#include <cstddef>

#include "worker/compute/shared_memory.h"

namespace ps {

using dnnl::memory;

std::vector<memory> ShareMemory(const CpuDevice& device,
                                const std::vector<std::vector<memory>>& steps) {
  std::vector<memory> handles;  // in the order of their first steps
  std::vector<MemoryUse> uses;
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
  const MemoryPieces pieces = ShareMemory(uses);
  std::vector<memory> owned;
  for (const size_t bytes : pieces.bytes) owned.push_back(device.Allocate(Bytes(bytes)));
  for (size_t i = 0; i < handles.size(); ++i) {
    handles[i].set_data_handle(owned[pieces.piece_of_use[i]].get_data_handle());
  }
  return owned;
}

}  // namespace ps
