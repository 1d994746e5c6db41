#ifndef PS_WORKER_COMPUTE_SHARED_MEMORY_H_
#define PS_WORKER_COMPUTE_SHARED_MEMORY_H_

#include <cstddef>
#include <vector>

namespace ps {

// A need for memory from one step of a pass to another, both included.
struct MemoryUse {
  size_t bytes = 0;
  size_t first = 0;
  size_t last = 0;
};

// Pieces of memory for a set of uses. Uses that do not overlap in time may share a piece.
struct MemoryPieces {
  std::vector<size_t> bytes;         // one per piece
  std::vector<size_t> piece_of_use;  // one per use
};

// Assigns a piece to each use. REQUIRES: `uses` are in the order of their first steps.
MemoryPieces ShareMemory(const std::vector<MemoryUse>& uses);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_SHARED_MEMORY_H_
