#ifndef PS_SERVER_PUSH_PACING_H_
#define PS_SERVER_PUSH_PACING_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace ps {

// Keeps the workers of a synchronous run abreast while they push at once. TCP shares a link
// unequally, and a chunk is answered only when the slowest worker has pushed it: the more the
// others are ahead, the longer the way back is idle. So a shard does not read on from a worker
// that is more than `lead_bytes` ahead of the slowest; flow control then stops that worker, and
// the link is the others'.
//
// Only while the slowest worker moves: one that is still computing gains nothing by the others'
// waiting. It counts as moving for a few times as long as its steps have lately taken, and for
// a second at most. The slowest worker must not depend on those that wait.
//
// Thread-safe, and without a lock for a push except the slowest worker's.
class PushPacing {
 public:
  // `clock` must outlive this. REQUIRES: workers >= 1, lead_bytes >= 0.
  PushPacing(int workers, int64_t lead_bytes, const Clock* clock);

  // The worker has pushed `bytes` more. Every worker pushes as much as the others in the end.
  void Pushed(uint32_t worker, int64_t bytes);

  // How long to wait before asking again whether to read on from the worker; zero: read on.
  absl::Duration Wait(uint32_t worker) const;

 private:
  int64_t Least() const;

  const int64_t lead_bytes_;
  const Clock* const clock_;
  std::vector<std::atomic<int64_t>> pushed_;  // bytes, by rank

  absl::Mutex mutex_;              // held to move the floor
  std::atomic<int64_t> floor_{0};  // what the slowest has pushed
  std::atomic<int64_t> moved_at_;  // Unix nanoseconds
  std::atomic<int64_t> step_;      // nanoseconds between two moves, on average of the last few
};

}  // namespace ps

#endif  // PS_SERVER_PUSH_PACING_H_
