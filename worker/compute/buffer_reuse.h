#ifndef EVENSHARD_WORKER_COMPUTE_BUFFER_REUSE_H_
#define EVENSHARD_WORKER_COMPUTE_BUFFER_REUSE_H_

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

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_BUFFER_REUSE_H_
