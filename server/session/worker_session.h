#ifndef EVENSHARD_SERVER_SESSION_WORKER_SESSION_H_
#define EVENSHARD_SERVER_SESSION_WORKER_SESSION_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "server/session/worker_buffers.h"
#include "server/store/push_counts.h"

namespace evenshard {

// The traffic of a rank since the start of the shard, summed over all incarnations that have held
// the rank. Every chunk that is pushed or answered changes it, so its fields are atomic instead of
// guarded by a lock.
struct WorkerActivity {
  std::atomic<int64_t> last_seen{std::numeric_limits<int64_t>::min()};  // Unix nanoseconds
  std::atomic<uint64_t> iterations{0};  // of training, up to the latest push that was taken
  PushCounts received;
  std::atomic<uint64_t> bytes_out{0};
};

// One incarnation of a worker that holds its rank at a shard. The session begins with the Join and
// ends when the incarnation leaves, is lost or is replaced. The incarnation's streams share the
// session. They may outlive its end, but nothing that they send after it is counted.
//
// The fence that guarantees this has two parts. The update policy checks holds_rank() and counts a
// push under one acquisition of the chunk's lock. Shard::Join acquires and releases the lock of
// every chunk after it has ended the old session and before it answers the new one. So a push of
// the old session is either counted before its successor learns at which iteration to start, or
// refused. Thread-safe.
class WorkerSession {
 public:
  // `buffers` is the memory that the worker shares, or null. `activity` and `clock` must outlive
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
  // Ends the session for good. Idempotent.
  void End() { holds_rank_ = false; }

  // Counts a push with `bytes` bytes of data, and its worker as seen. `iterations`: those of
  // training that the worker has pushed for with it.
  void CountPush(PushOutcome outcome, uint64_t iterations, uint64_t bytes) {
    activity_->last_seen = absl::ToUnixNanos(clock_->Now());
    activity_->received.Add(outcome, bytes);
    uint64_t before = activity_->iterations;
    while (before < iterations &&
           !activity_->iterations.compare_exchange_weak(before, iterations)) {
    }
  }
  void CountReply(uint64_t bytes) { activity_->bytes_out += bytes; }

 private:
  const uint32_t rank_;
  const uint64_t incarnation_;
  const std::shared_ptr<WorkerBuffers> buffers_;
  WorkerActivity* const activity_;
  const Clock* const clock_;
  std::atomic<bool> holds_rank_{true};
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_WORKER_SESSION_H_
