#ifndef PS_WORKER_COMPUTE_SHARED_MEMORY_H_
#define PS_WORKER_COMPUTE_SHARED_MEMORY_H_

#include <cstddef>
#include <vector>

namespace ps {

// Something that needs memory for a while: from one step of a pass to another, both included.
struct MemoryUse {
  size_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
};

// Pieces of memory for such uses; those never needed at once may share one.
struct MemoryPieces {
  std::vector<size_t> bytes;         // by piece
  std::vector<size_t> piece_of_use;  // by use
};

// `uses` in the order of their first steps.
MemoryPieces ShareMemory(const std::vector<MemoryUse>& uses);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_SHARED_MEMORY_H_
