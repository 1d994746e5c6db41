#ifndef PS_SERVER_MEMBERSHIP_H_
#define PS_SERVER_MEMBERSHIP_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/float_buffer.h"
#include "proto/admin.pb.h"
#include "proto/worker_usage.pb.h"

namespace ps {

// A worker's buffers, where it has them: see SharedBuffers in proto/parameter_server.proto.
struct WorkerBuffers {
  FloatBuffer gradients;
  FloatBuffer parameters;
};

// Who holds which rank at a shard. An incarnation, a random number chosen by each start
// of a worker, tells a restarted worker from the old one. Thread-safe.
//
//   NEVER_JOINED --Join--> JOINED --Leave--> LEFT
//                            |  ^              |
//       last stream ends     v  |    Join      |
//       without a Leave:   LOST-+--------------+
//
class Membership {
 public:
  // As many as limits.connections may be.
  static constexpr int kMaxStreams = 64;

  // A rank that joined but never opened a stream is free again after `join_grace`.
  Membership(int workers, absl::Duration join_grace, const Clock* clock);

  // Errors: OUT_OF_RANGE for the rank; INVALID_ARGUMENT for incarnation 0;
  // ALREADY_EXISTS while another incarnation holds the rank.
  // `buffers`: where the exchange with the worker goes through them; else null.
  absl::Status Join(uint32_t rank, uint64_t incarnation, const std::string& address,
                    std::shared_ptr<WorkerBuffers> buffers = nullptr);

  // Returns whether the worker had opened a stream. `failed`: it gives up, so it counts as
  // LOST. Errors: FAILED_PRECONDITION (here and below) where that incarnation does not
  // hold the rank.
  absl::StatusOr<bool> Leave(uint32_t rank, uint64_t incarnation, bool failed);

  // Returns the buffers that it joined with. Errors: RESOURCE_EXHAUSTED where the incarnation has
  // kMaxStreams open.
  absl::StatusOr<std::shared_ptr<WorkerBuffers>> StreamOpened(uint32_t rank, uint64_t incarnation);
  // Returns whether the worker is lost by this: it was its last stream and it never left.
  bool StreamClosed(uint32_t rank, uint64_t incarnation);

  // Keeps what the worker says it uses, in place of what it said before; until another incarnation
  // joins. That is no sign of life: a worker that hangs goes on reporting.
  absl::Status Report(uint32_t rank, uint64_t incarnation, const WorkerUsage& usage);

  // Counts traffic of a worker that has a stream open.
  void CountPush(uint32_t rank, uint64_t iteration, uint64_t bytes);
  void CountReply(uint32_t rank, uint64_t bytes);

  // The iteration after the latest that the worker pushed; 0 where it never did.
  uint64_t NextIteration(uint32_t rank) const;

  // "worker 2 (ipv4:10.0.0.7:4711, joined, last seen 12s ago at iteration 40)"
  std::string Describe(uint32_t rank) const;
  // Whether the worker has finished.
  bool HasLeft(uint32_t rank) const;
  // Appends a WorkerStats for each rank.
  void Fill(ShardStats* stats) const;

 private:
  struct Member {
    WorkerStats::State state = WorkerStats::NEVER_JOINED;
    uint64_t incarnation = 0;
    std::string address;
    bool shares_memory = false;
    std::shared_ptr<WorkerBuffers> buffers;  // until the last stream has ended
    int streams = 0;                         // open ones of this incarnation
    bool took_part = false;                  // this incarnation has opened a stream
    std::optional<WorkerUsage> usage;        // this incarnation's latest report
    absl::Time reported;                     // when it came
  };

  // What the exchange writes for every chunk, without a lock.
  struct Activity {
    std::atomic<int64_t> last_seen{std::numeric_limits<int64_t>::min()};  // Unix nanoseconds
    std::atomic<uint64_t> next_iteration{0};
    std::atomic<uint64_t> pushes{0};
    std::atomic<uint64_t> bytes_in{0};
    std::atomic<uint64_t> bytes_out{0};
  };

  absl::Status CheckHolder(uint32_t rank, uint64_t incarnation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string DescribeLocked(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Seen(uint32_t rank);
  absl::Duration SinceLastSeen(uint32_t rank) const;

  const absl::Duration join_grace_;
  const Clock* const clock_;
  std::vector<Activity> activities_;  // by rank

  mutable absl::Mutex mutex_;  // not on the way of a chunk; no other lock is taken under it
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace ps

#endif  // PS_SERVER_MEMBERSHIP_H_
