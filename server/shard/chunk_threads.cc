#include "server/shard/chunk_threads.h"

#include <algorithm>
#include <utility>

namespace evenshard {

void ChunkThreads::End() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void ChunkThreads::Add(uint32_t chunk, std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return;
  queue_.Push(chunk, std::move(work));
  while (threads_.size() < std::max(1u, std::thread::hardware_concurrency())) {
    threads_.emplace_back([this] { Work(); });
  }
}

void ChunkThreads::Work() {
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ending_ || !queue_.empty();
  };
  while (true) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&wanted));
      if (ending_) return;
      work = queue_.Pop();
    }
    work();
  }
}

}  // namespace evenshard
