#include "server/rpc/push_threads.h"

#include <algorithm>
#include <utility>

namespace evenshard {

void PushThreads::End() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void PushThreads::Add(uint32_t chunk, std::function<void()> push) {
  absl::MutexLock lock(&mutex_);
  if (ending_) return;
  pushes_.Push(chunk, std::move(push));
  while (threads_.size() < std::max(1u, std::thread::hardware_concurrency())) {
    threads_.emplace_back([this] { Work(); });
  }
}

void PushThreads::Work() {
  const auto wanted = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ending_ || !pushes_.empty();
  };
  while (true) {
    std::function<void()> push;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(&wanted));
      if (ending_) return;
      push = pushes_.Pop();
    }
    push();
  }
}

}  // namespace evenshard
