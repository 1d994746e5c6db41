#ifndef EVENSHARD_COMMON_BASE_WAKEUP_H_
#define EVENSHARD_COMMON_BASE_WAKEUP_H_

#include <functional>
#include <stop_token>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// A sleep that other threads can end. One thread sleeps at a time. A Wake while nobody sleeps ends
// the next sleep at once, so that a sleeper who looks for work after each sleep misses none.
// Thread-safe.
class Wakeup {
 public:
  void Wake() {
    absl::ReleasableMutexLock lock(&mutex_);
    std::stop_source woken = woken_;
    lock.Release();
    woken.request_stop();
  }

  // Returns at `deadline`, after a Wake, or as soon as `stop` is requested.
  void SleepUntil(const Clock& clock, absl::Time deadline, const std::stop_token& stop) {
    std::stop_token woken;
    {
      absl::MutexLock lock(&mutex_);
      woken = woken_.get_token();
    }
    {
      const std::stop_callback<std::function<void()>> on_stop(stop, [this] { Wake(); });
      clock.SleepUntil(deadline, woken);
    }
    absl::MutexLock lock(&mutex_);
    if (woken_.stop_requested()) woken_ = std::stop_source();
  }

 private:
  absl::Mutex mutex_;
  std::stop_source woken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_WAKEUP_H_
