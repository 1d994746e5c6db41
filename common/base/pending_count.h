#ifndef EVENSHARD_COMMON_BASE_PENDING_COUNT_H_
#define EVENSHARD_COMMON_BASE_PENDING_COUNT_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "absl/time/time.h"

namespace evenshard {

// Counts pending operations and waits until there are none. Thread-safe.
//
// The timeout follows the monotonic clock. The timeouts of this version of Abseil (Mutex, CondVar,
// Notification) follow the time of day, so setting it makes them end early or never.
class PendingCount {
 public:
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }

  // Does not touch the object once a waiting thread has seen zero, because that thread may destroy
  // it.
  void Remove() {
    const std::lock_guard lock(mutex_);
    if (--count_ == 0) zero_.notify_all();
  }

  void AwaitZero() {
    std::unique_lock lock(mutex_);
    zero_.wait(lock, [this] { return count_ == 0; });
  }

  // Returns whether the count reached zero within `timeout`. REQUIRES: `timeout` is finite.
  bool AwaitZeroFor(absl::Duration timeout) {
    std::unique_lock lock(mutex_);
    return zero_.wait_for(lock, absl::ToChronoNanoseconds(timeout), [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable zero_;
  int64_t count_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_PENDING_COUNT_H_
