#ifndef EVENSHARD_SERVER_STORE_COPY_MEMORY_H_
#define EVENSHARD_SERVER_STORE_COPY_MEMORY_H_

#include <cstdint>
#include <map>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/float_buffer.h"

namespace evenshard {

// Memory for copies, of which at most `max_bytes` exist at a time. Memory that is given back is
// kept for the next copies, because fresh memory costs more than a copy into it. Thread-safe.
class CopyMemory {
 public:
  explicit CopyMemory(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Returns memory for at least `floats` floats, or nothing if it would be too much, or the kernel
  // has none.
  std::optional<FloatBuffer> Take(int64_t floats);
  void GiveBack(FloatBuffer buffer);
  // Frees what has been given back.
  void Release();

  int64_t max_bytes() const { return max_bytes_; }

 private:
  const int64_t max_bytes_;
  absl::Mutex mutex_;
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of the memory in use and the spare memory
  std::multimap<int64_t, FloatBuffer> spares_ ABSL_GUARDED_BY(mutex_);  // by bytes
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_STORE_COPY_MEMORY_H_
