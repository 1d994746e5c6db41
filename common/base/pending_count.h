#ifndef PS_COMMON_BASE_PENDING_COUNT_H_
#define PS_COMMON_BASE_PENDING_COUNT_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"

namespace ps {

// Counts what is under way, and waits until nothing is. Thread-safe.
//
// Its timeout follows the monotonic clock. Those of this version of Abseil (Mutex, CondVar,
// Notification) follow the time of day: setting it ends them early, or not at all.
class PendingCount {
 public:
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }

  // Does not touch the object any more once a waiting thread has seen zero, which may destroy it.
  void Remove() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) zero_.notify_all();
  }

  void AwaitZero() {
    std::unique_lock lock(mutex_);
    zero_.wait(lock, [this] { return count_ == 0; });
  }

  // Whether the count was zero before `timeout`, which is finite, had passed.
  bool AwaitZeroFor(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    return zero_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable zero_;
  int64_t count_ = 0;
};

}  // namespace ps

#endif  // PS_COMMON_BASE_PENDING_COUNT_H_
