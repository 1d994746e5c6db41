#include "worker/compute/buffer_reuse.h"

#include <utility>

namespace evenshard {

ReusedBuffers AssignBuffers(const std::vector<BufferUse>& uses) {
  ReusedBuffers buffers;
  std::vector<size_t> busy_until;  // the last step of its current use, by buffer
  for (const BufferUse& use : uses) {
    // Take the free buffer that has to grow least, and among those that need not grow the smallest.
    size_t best = buffers.bytes.size();
    const auto cost = [&](size_t buffer) {
      const size_t bytes = buffers.bytes[buffer];
      return std::pair(use.bytes > bytes ? use.bytes - bytes : 0, bytes);
    };
    for (size_t buffer = 0; buffer < buffers.bytes.size(); ++buffer) {
      if (busy_until[buffer] >= use.first) continue;
      if (best == buffers.bytes.size() || cost(buffer) < cost(best)) best = buffer;
    }
    if (best == buffers.bytes.size()) {
      buffers.bytes.push_back(0);
      busy_until.push_back(0);
    }
    buffers.bytes[best] = std::max(buffers.bytes[best], use.bytes);
    busy_until[best] = use.last;
    buffers.buffer_of_use.push_back(best);
  }
  return buffers;
}

}  // namespace evenshard
