#ifndef PS_SERVER_MEMBERSHIP_H_
#define PS_SERVER_MEMBERSHIP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/admin.pb.h"
#include "proto/worker_usage.pb.h"
#include "server/worker_session.h"

namespace ps {

// Who holds which rank at a shard. An incarnation, a random number chosen by each start
// of a worker, tells a restarted worker from the old one. Thread-safe.
//
//   NEVER_JOINED --Join--> JOINED --Leave--> LEFT
//                            |  ^              |
//       last stream ends     v  |    Join      |
//       without a Leave:   LOST-+--------------+
//
// A worker that has joined and has no stream for kStreamGrace is lost too.
class Membership {
 public:
  // The streams of an incarnation: as many as limits.connections may be.
  static constexpr int kMaxStreams = 64;
  // A worker opens its streams right before or after it joins.
  static constexpr absl::Duration kStreamGrace = absl::Seconds(10);

  Membership(int workers, const Clock* clock);

  // Takes the rank for that incarnation. Errors: OUT_OF_RANGE for the rank; INVALID_ARGUMENT for
  // incarnation 0; ALREADY_EXISTS while another incarnation holds the rank, UNAVAILABLE where it
  // does so without a stream: that passes by itself, and the message says when.
  absl::StatusOr<std::shared_ptr<WorkerSession>> Join(
      uint32_t rank, uint64_t incarnation, const std::string& address,
      std::shared_ptr<WorkerBuffers> buffers = nullptr);

  // Gives the rank up. Returns whether the worker had opened a stream. `failed`: it gives up, so
  // it counts as LOST. Errors: FAILED_PRECONDITION (here and below) where that incarnation does
  // not hold the rank.
  absl::StatusOr<bool> Leave(uint32_t rank, uint64_t incarnation, bool failed);

  // Errors: RESOURCE_EXHAUSTED where the incarnation has kMaxStreams open.
  absl::StatusOr<std::shared_ptr<WorkerSession>> StreamOpened(uint32_t rank, uint64_t incarnation);
  // Returns whether the worker is lost by this: it was its last stream and it never left.
  bool StreamClosed(WorkerSession* session);

  // Takes its rank from every worker that has joined and has had no stream for kStreamGrace;
  // returns these ranks.
  std::vector<uint32_t> LoseWithoutStream();

  // Keeps what the worker says it uses, in place of what it said before; until another incarnation
  // joins. That is no sign of life: a worker that hangs goes on reporting.
  absl::Status Report(uint32_t rank, uint64_t incarnation, const WorkerUsage& usage);

  // The iteration after the latest that was taken from the rank; 0 where none was.
  uint64_t NextIteration(uint32_t rank) const;

  // "worker 2 (ipv4:10.0.0.7:4711, joined, last seen 12s ago at iteration 40)"
  std::string Describe(uint32_t rank) const;
  // The ranks whose workers have finished, in ascending order.
  std::vector<uint32_t> HaveLeft() const;
  // Appends a WorkerStats for each rank.
  void Fill(ShardStats* stats) const;

 private:
  struct Member {
    WorkerStats::State state = WorkerStats::NEVER_JOINED;
    uint64_t incarnation = 0;
    std::shared_ptr<WorkerSession> session;  // null but in the state JOINED
    std::string address;
    bool shares_memory = false;
    int streams = 0;                   // open ones of the session
    bool took_part = false;            // the session has opened a stream
    std::optional<WorkerUsage> usage;  // this incarnation's latest report
    absl::Time reported;               // when it came
  };

  absl::Status CheckHolder(uint32_t rank, uint64_t incarnation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The rank passes on from its session.
  void EndSession(Member& member, WorkerStats::State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // How long a rank that is held without a stream stays so at most; zero: no longer.
  absl::Duration GraceLeft(uint32_t rank) const;
  std::string DescribeLocked(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Seen(uint32_t rank);
  absl::Duration SinceLastSeen(uint32_t rank) const;

  const Clock* const clock_;
  std::vector<WorkerActivity> activities_;  // by rank

  mutable absl::Mutex mutex_;  // not on the way of a chunk; no other lock is taken under it
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace ps

#endif  // PS_SERVER_MEMBERSHIP_H_
