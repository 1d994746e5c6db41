#include "worker/compute/shared_memory.h"

#include <algorithm>
#include <utility>

namespace ps {

MemoryPieces ShareMemory(const std::vector<MemoryUse>& uses) {
  MemoryPieces pieces;
  std::vector<size_t> busy_until;  // by piece
  for (const MemoryUse& use : uses) {
    // The free piece that has to grow least; of those that need not, the smallest.
    size_t best = pieces.bytes.size();
    const auto cost = [&](size_t piece) {
      const size_t bytes = pieces.bytes[piece];
      return std::pair(use.bytes > bytes ? use.bytes - bytes : 0, bytes);
    };
    for (size_t piece = 0; piece < pieces.bytes.size(); ++piece) {
      if (busy_until[piece] >= use.first) continue;
      if (best == pieces.bytes.size() || cost(piece) < cost(best)) best = piece;
    }
    if (best == pieces.bytes.size()) {
      pieces.bytes.push_back(0);
      busy_until.push_back(0);
    }
    pieces.bytes[best] = std::max(pieces.bytes[best], use.bytes);
    busy_until[best] = use.last;
    pieces.piece_of_use.push_back(best);
  }
  return pieces;
}

}  // namespace ps
