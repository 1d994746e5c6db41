#ifndef PS_WORKER_EXCHANGE_PUSH_QUEUE_H_
#define PS_WORKER_EXCHANGE_PUSH_QUEUE_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/chunk_queue.h"

namespace ps {

// The chunks that wait to be pushed to one shard. Its streams share them, so that all workers
// push the same chunks at about the same time, also where one stream is faster than another.
// Thread-safe.
class PushQueue {
 public:
  PushQueue(ChunkOrder order, int streams) : chunks_(order), last_(streams) {}

  void Push(uint32_t chunk) {
    absl::MutexLock lock(&mutex_);
    chunks_.Push(chunk, chunk);
  }

  // For that stream alone, after all others.
  void PushLast(int stream, uint32_t chunk) {
    absl::MutexLock lock(&mutex_);
    last_[stream] = chunk;
  }

  // Removes and returns what the stream is to send next, if there is anything.
  std::optional<uint32_t> Pop(int stream) {
    absl::MutexLock lock(&mutex_);
    if (chunks_.empty()) return std::exchange(last_[stream], std::nullopt);
    return chunks_.Pop();
  }

 private:
  absl::Mutex mutex_;
  ChunkQueue<uint32_t> chunks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<uint32_t>> last_ ABSL_GUARDED_BY(mutex_);  // by stream
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_PUSH_QUEUE_H_
