#include "server/store/copy_memory.h"

#include <iterator>
#include <utility>

#include "absl/status/statusor.h"

namespace evenshard {

std::optional<FloatBuffer> CopyMemory::Take(int64_t floats) {
  const int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  absl::MutexLock lock(&mutex_);
  // A much larger one is kept for a larger copy.
  if (const auto spare = spares_.lower_bound(bytes);
      spare != spares_.end() && spare->first <= 2 * bytes) {
    FloatBuffer buffer = std::move(spare->second);
    spares_.erase(spare);
    return buffer;
  }
  // No spare fits.
  while (bytes_ + bytes > max_bytes_ && !spares_.empty()) {
    const auto largest = std::prev(spares_.end());
    bytes_ -= largest->first;
    spares_.erase(largest);
  }
  if (bytes_ + bytes > max_bytes_) return std::nullopt;
  absl::StatusOr<FloatBuffer> buffer = FloatBuffer::Allocate(floats);
  if (!buffer.ok()) return std::nullopt;
  bytes_ += bytes;
  return *std::move(buffer);
}

void CopyMemory::GiveBack(FloatBuffer buffer) {
  const auto bytes = static_cast<int64_t>(buffer.span().size() * sizeof(float));
  absl::MutexLock lock(&mutex_);
  spares_.emplace(bytes, std::move(buffer));
}

void CopyMemory::Release() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [bytes, spare] : spares_) bytes_ -= bytes;
  spares_.clear();
}

}  // namespace evenshard
