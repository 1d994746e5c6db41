#ifndef PS_WORKER_EXCHANGE_PUSH_QUEUE_H_
#define PS_WORKER_EXCHANGE_PUSH_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ps {

// The chunks that wait to be pushed to one shard, first in, first out. The streams to the shard
// share one queue, so that all workers push the same chunks at about the same time even if one
// stream is faster than another. Thread-safe.
class PushQueue {
 public:
  explicit PushQueue(int streams) : last_(streams) {}

  void Push(uint32_t chunk) {
    absl::MutexLock lock(&mutex_);
    chunks_.push_back(chunk);
  }

  void Clear() {
    absl::MutexLock lock(&mutex_);
    chunks_.clear();
    std::fill(last_.begin(), last_.end(), std::nullopt);
  }

  // Sorts the chunks that wait by their ids, the order in which the next forward pass needs them.
  void Prioritise() {
    absl::MutexLock lock(&mutex_);
    std::sort(chunks_.begin(), chunks_.end());
  }

  // Adds the last chunk of a stream: only that stream takes it, after all other chunks.
  void PushLast(int stream, uint32_t chunk) {
    absl::MutexLock lock(&mutex_);
    last_[stream] = chunk;
  }

  // Removes and returns the next chunk for the stream to send, if any.
  std::optional<uint32_t> Pop(int stream) {
    absl::MutexLock lock(&mutex_);
    if (chunks_.empty()) return std::exchange(last_[stream], std::nullopt);
    const uint32_t chunk = chunks_.front();
    chunks_.pop_front();
    return chunk;
  }

 private:
  absl::Mutex mutex_;
  std::deque<uint32_t> chunks_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::optional<uint32_t>> last_ ABSL_GUARDED_BY(mutex_);  // by stream
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_PUSH_QUEUE_H_
