#ifndef PS_SERVER_WORKER_SESSION_H_
#define PS_SERVER_WORKER_SESSION_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "common/base/clock.h"
#include "server/push_counts.h"
#include "server/worker_buffers.h"

namespace ps {

// The traffic of a rank since the shard's start, over all incarnations that have held it. The
// exchange writes it for every chunk, without a lock.
struct WorkerActivity {
  std::atomic<int64_t> last_seen{std::numeric_limits<int64_t>::min()};  // Unix nanoseconds
  std::atomic<uint64_t> next_iteration{0};  // after the latest that was taken
  PushCounts received;
  std::atomic<uint64_t> bytes_out{0};
};

// One incarnation's hold on its rank at a shard, from its Join until the rank passes on: until it
// leaves, is lost, or another incarnation takes over. Its streams share it and may outlive the
// hold; nothing that they send afterwards is counted.
//
// The fence: the update policy asks holds_rank() under the lock of the chunk that a push is for,
// and Shard::Join passes through every chunk's lock after the rank has passed on and before it
// answers the successor. So a push either is counted before the successor learns where to start,
// or is refused. Thread-safe.
class WorkerSession {
 public:
  // `buffers`: the memory that the worker shares, or null. `activity` and `clock` must outlive
  // the session.
  WorkerSession(uint32_t rank, uint64_t incarnation, std::shared_ptr<WorkerBuffers> buffers,
                WorkerActivity* activity, const Clock* clock)
      : rank_(rank),
        incarnation_(incarnation),
        buffers_(std::move(buffers)),
        activity_(activity),
        clock_(clock) {}

  uint32_t rank() const { return rank_; }
  uint64_t incarnation() const { return incarnation_; }
  const std::shared_ptr<WorkerBuffers>& buffers() const { return buffers_; }

  bool holds_rank() const { return holds_rank_; }
  // The rank passes on; for good.
  void End() { holds_rank_ = false; }

  // Counts a push of `iteration` with `bytes` of data.
  void CountPush(PushOutcome outcome, uint64_t iteration, uint64_t bytes);
  void CountReply(uint64_t bytes) { activity_->bytes_out += bytes; }

 private:
  const uint32_t rank_;
  const uint64_t incarnation_;
  const std::shared_ptr<WorkerBuffers> buffers_;
  WorkerActivity* const activity_;
  const Clock* const clock_;
  std::atomic<bool> holds_rank_{true};
};

}  // namespace ps

#endif  // PS_SERVER_WORKER_SESSION_H_
