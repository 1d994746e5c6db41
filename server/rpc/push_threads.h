#ifndef EVENSHARD_SERVER_RPC_PUSH_THREADS_H_
#define EVENSHARD_SERVER_RPC_PUSH_THREADS_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/chunk_queue.h"

namespace evenshard {

// Threads that take the pushes of workers whose memory the shard shares. A push that comes in a
// message is taken by the thread that receives it, at the pace of the network and in the order
// that its sender chose. Pushes from shared memory are all there at once, so the shard orders them
// itself: it has one thread for each processor, and takes the chunks of all workers from one queue.
// Thread-safe.
class PushThreads {
 public:
  explicit PushThreads(ChunkOrder order) : pushes_(order) {}
  // Calls End.
  ~PushThreads() { End(); }

  // Queues `push`, which one of the threads will call. The first Add starts the threads. Drops it
  // after End.
  void Add(uint32_t chunk, std::function<void()> push);

  // Drops the pushes in the queue and waits for those that are being taken.
  void End();

 private:
  void Work();

  absl::Mutex mutex_;
  ChunkQueue<std::function<void()>> pushes_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PUSH_THREADS_H_
