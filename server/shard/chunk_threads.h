#ifndef EVENSHARD_SERVER_SHARD_CHUNK_THREADS_H_
#define EVENSHARD_SERVER_SHARD_CHUNK_THREADS_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/chunk_queue.h"

namespace evenshard {

// Threads for work on chunks that is there all at once: the pushes of workers whose memory the
// shard shares, and updates that have waited for the norm of the gradient. A push that comes in a
// message is taken by the thread that receives it, at the pace of the network and in the order that
// its sender chose. These threads, one for each processor, order the chunks themselves: they take
// all of them from one queue. Thread-safe.
class ChunkThreads {
 public:
  explicit ChunkThreads(ChunkOrder order) : queue_(order) {}
  // Calls End.
  ~ChunkThreads() { End(); }

  // Queues `work`, which one of the threads will call. The first Add starts the threads. Drops it
  // after End.
  void Add(uint32_t chunk, std::function<void()> work);

  // Drops the work in the queue and waits for what is being done.
  void End();

 private:
  void Work();

  absl::Mutex mutex_;
  ChunkQueue<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SHARD_CHUNK_THREADS_H_
