#ifndef PS_SERVER_PUSH_THREADS_H_
#define PS_SERVER_PUSH_THREADS_H_

#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/chunk_queue.h"

namespace ps {

// Threads for the pushes of workers whose memory the shard shares. What is sent comes at the pace
// of the network, in the order that its sender chose last, and is worked on by the threads that
// receive it; what is shared is all there at once, so the shard chooses: it has a thread for each
// processor, and takes the chunks of all workers in one order. Thread-safe.
class PushThreads {
 public:
  explicit PushThreads(ChunkOrder order) : pushes_(order) {}
  // Drops what waits, and waits for what is under way.
  ~PushThreads();

  // Has `push` called, in its turn, by one of the threads; the first call starts them.
  void Add(uint32_t chunk, std::function<void()> push);

 private:
  void Work();

  absl::Mutex mutex_;
  ChunkQueue<std::function<void()>> pushes_ ABSL_GUARDED_BY(mutex_);
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ps

#endif  // PS_SERVER_PUSH_THREADS_H_
