#include "worker/compute/shared_memory.h"

#include <algorithm>
#include <utility>

namespace ps {

MemoryPieces ShareMemory(const std::vector<MemoryUse>& uses) {
  MemoryPieces pieces;
  std::vector<size_t> busy_until;  // the last step of its current use, by piece
  for (const MemoryUse& use : uses) {
    // Take the free piece that has to grow least, and among those that need not grow the smallest.
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
