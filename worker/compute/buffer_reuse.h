#ifndef EVENSHARD_WORKER_COMPUTE_BUFFER_REUSE_H_
#define EVENSHARD_WORKER_COMPUTE_BUFFER_REUSE_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace evenshard {

// A need for memory from one step of a pass to another, both included.
struct BufferUse {
  size_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
};

// Buffers for a set of uses. Uses that do not overlap in time may take turns with a buffer.
struct ReusedBuffers {
  std::vector<size_t> bytes;          // one per buffer
  std::vector<size_t> buffer_of_use;  // one per use
};

// Assigns a buffer to each use. REQUIRES: `uses` are in the order of their first steps.
ReusedBuffers AssignBuffers(const std::vector<BufferUse>& uses);

// Returns the handles that the steps of a pass list, in the order of their first steps, without
// empty ones, and sets `uses` to how long each is needed: from the first to the last step that
// lists it. `bytes_of` gives the memory that a handle needs.
template <typename Handle, typename BytesOf>
std::vector<Handle> HandlesOf(const std::vector<std::vector<Handle>>& steps, BytesOf bytes_of,
                              std::vector<BufferUse>* uses) {
  std::vector<Handle> handles;
  for (size_t step = 0; step < steps.size(); ++step) {
    for (const Handle& handle : steps[step]) {
      if (!handle) continue;
      const size_t known = std::find(handles.begin(), handles.end(), handle) - handles.begin();
      if (known == handles.size()) {
        handles.push_back(handle);
        uses->push_back({bytes_of(handle), step, step});
      }
      (*uses)[known].last = step;
    }
  }
  return handles;
}

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_BUFFER_REUSE_H_
