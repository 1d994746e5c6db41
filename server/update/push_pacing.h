#ifndef EVENSHARD_SERVER_UPDATE_PUSH_PACING_H_
#define EVENSHARD_SERVER_UPDATE_PUSH_PACING_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// Keeps the workers of a synchronous run abreast while they push at the same time. TCP divides a
// link unequally, and a chunk is answered only when the slowest worker has pushed it. The further
// the others are ahead, the longer the link back to the workers is idle. So a shard stops reading
// from a worker that is more than `lead_bytes` ahead of the slowest. Flow control then stops that
// worker, which leaves the link to the others.
//
// This applies only while the slowest worker is pushing, since a worker that is still computing
// gains nothing if others wait. The slowest worker counts as pushing for a few times the average of
// its latest steps, at most for a second. REQUIRES: the slowest worker does not depend on those
// that wait.
//
// Thread-safe. Only pushes of the slowest worker acquire a lock.
class PushPacing {
 public:
  // `clock` must outlive this. REQUIRES: workers >= 1, lead_bytes >= 0.
  PushPacing(int workers, int64_t lead_bytes, const Clock* clock);

  // Counts `bytes` more as pushed by the worker. All workers push equally many in the end.
  void Pushed(uint32_t worker, int64_t bytes);

  // Begins anew with what each rank has pushed, from a place that is the same for all; a rank
  // without a number no longer counts.
  void Restart(const std::vector<std::optional<int64_t>>& pushed);

  // Returns for how long not to read from the worker before calling Wait again, or zero if the
  // worker may be read.
  absl::Duration Wait(uint32_t worker) const;

 private:
  int64_t Least() const;

  const int64_t lead_bytes_;
  const Clock* const clock_;
  std::vector<std::atomic<int64_t>> pushed_;  // bytes, by rank

  absl::Mutex mutex_;              // held to move the floor
  std::atomic<int64_t> floor_{0};  // bytes that the slowest worker has pushed
  std::atomic<int64_t> moved_at_;  // when the floor last moved, Unix nanoseconds
  std::atomic<int64_t> step_;      // average nanoseconds between the last few moves
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_PUSH_PACING_H_
