#ifndef EVENSHARD_SERVER_SESSION_MEMBERSHIP_H_
#define EVENSHARD_SERVER_SESSION_MEMBERSHIP_H_

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
#include "server/session/worker_session.h"

namespace evenshard {

// Records which worker holds which rank at a shard. Every start of a worker chooses a random
// number, its incarnation, which tells the restarted worker from the old one. Thread-safe.
//
//   NEVER_JOINED --Join--> JOINED --Leave--> LEFT
//                            |  ^              |
//       no stream for too    v  |    Join      |
//       long, no Leave:    LOST-+--------------+
//
// A worker whose last stream has ended may open another one within the time that the constructor
// is given. One that has joined and opens no stream within kStreamGrace is lost too.
class Membership {
 public:
  // The most streams that an incarnation may have open: twice the largest limits.connections, since
  // those of connections that broke without a word are open until the shard notices.
  static constexpr int kMaxStreams = 128;
  // How long a worker may hold its rank without a stream. Workers open their streams right before
  // or after they join.
  static constexpr absl::Duration kStreamGrace = absl::Seconds(10);

  // A worker without a connection may be back within `reconnect`. With 0 it is lost at once.
  Membership(int workers, absl::Duration reconnect, const Clock* clock);

  // Gives the rank to the incarnation and returns its session. A repeated Join returns the session
  // that has streams, or a new one if it has none. With a `view`, the rank is taken from its
  // present holder, because the view says so; 0 without views. Errors: OUT_OF_RANGE for a rank that
  // does not exist; INVALID_ARGUMENT for incarnation 0; ALREADY_EXISTS if another incarnation holds
  // the rank; UNAVAILABLE if it does so without a stream, which ends by itself at a time that the
  // message states.
  absl::StatusOr<std::shared_ptr<WorkerSession>> Join(
      uint32_t rank, uint64_t incarnation, const std::string& address,
      std::shared_ptr<WorkerBuffers> buffers = nullptr, uint64_t view = 0);

  // Keeps why a worker that wants the rank was refused before Join, for Describe to say.
  void Refused(uint32_t rank, const absl::Status& reason);

  // Ends the session of the rank, whose worker is lost, unless `incarnation` holds it.
  void EndOthers(uint32_t rank, uint64_t incarnation);

  // Ends the session of the incarnation and returns whether it had opened a stream. The worker
  // becomes LOST if it `failed`, otherwise LEFT.
  // Errors, here and in the methods below: FAILED_PRECONDITION if the incarnation does not hold the
  // rank, and for Leave also if it has joined in a later view than `view`.
  absl::StatusOr<bool> Leave(uint32_t rank, uint64_t incarnation, bool failed, uint64_t view = 0);

  // Counts a stream of the incarnation and returns its session.
  // Errors: also RESOURCE_EXHAUSTED if the incarnation has kMaxStreams streams open.
  absl::StatusOr<std::shared_ptr<WorkerSession>> StreamOpened(uint32_t rank, uint64_t incarnation);
  // The consequence of a stream's end for its worker.
  enum class AfterStream {
    kGoesOn,       // it has other streams, or has lost its rank before
    kMayComeBack,  // it was the last one
    kLost,         // it was the last one, and no other is waited for
  };
  AfterStream StreamClosed(WorkerSession* session);

  // A worker that has lost its rank, and how: "it joined and opened no stream within 10s".
  struct Absence {
    uint32_t rank;
    uint64_t incarnation;
    std::string how;
  };
  // Takes the rank of every worker that has had no stream for too long.
  std::vector<Absence> LoseWithoutStream();

  // Keeps a worker's report of its usage until its next report or until another incarnation joins.
  // A report is no sign of life, because a worker that hangs goes on reporting. Errors:
  // INVALID_ARGUMENT if it is longer than any usage can be; FAILED_PRECONDITION if the incarnation
  // does not hold the rank.
  absl::Status Report(uint32_t rank, uint64_t incarnation, const WorkerUsage& usage);

  // Returns OK if the incarnation holds the rank.
  absl::Status CheckHolds(uint32_t rank, uint64_t incarnation) const;
  // Whether a worker has ever held the rank here.
  bool EverJoined(uint32_t rank) const;

  // Returns, for example,
  // "worker 2 (ipv4:10.0.0.7:4711, joined, last seen 12s ago at iteration 40)", or
  // "worker 2 (never joined; refused 3s ago: worker 2 has another config than shard 0; ...)".
  std::string Describe(uint32_t rank) const;
  // Returns, for example, "worker 2 (...), worker 5 (...) and 3 more".
  std::string Describe(const std::vector<uint32_t>& ranks) const;
  // Returns the ranks whose workers have finished, in ascending order.
  std::vector<uint32_t> HaveLeft() const;
  // Returns how many workers are lost and have not come back.
  int CountLost() const;
  // Appends a WorkerStats for each rank.
  void Fill(ShardStats* stats) const;

 private:
  struct Member {
    WorkerStats::State state = WorkerStats::NEVER_JOINED;
    uint64_t incarnation = 0;
    uint64_t view = 0;                       // that of the last Join
    std::shared_ptr<WorkerSession> session;  // null except in the state JOINED
    std::string address;
    bool shares_memory = false;
    int streams = 0;                   // the session's open streams
    bool took_part = false;            // the session has opened a stream
    absl::Time without_stream;         // since when it has none
    std::optional<WorkerUsage> usage;  // this incarnation's latest report
    absl::Time reported;               // when the report came
    std::string refusal;               // the last one since the last Join
    absl::Time refused;                // when it was refused
  };

  absl::Status CheckHolder(uint32_t rank, uint64_t incarnation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the session of a JOINED member, which then is in `state`.
  void EndSession(Member& member, WorkerStats::State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns for how long a rank that is held without a stream remains taken; zero if it is free.
  absl::Duration GraceLeft(const Member& member) const;
  std::string DescribeLocked(uint32_t rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Seen(uint32_t rank);
  absl::Time LastSeen(uint32_t rank) const;
  // Returns "12s ago".
  std::string Ago(absl::Time time) const;

  const absl::Duration reconnect_;
  const Clock* const clock_;
  std::vector<WorkerActivity> activities_;  // by rank

  mutable absl::Mutex mutex_;  // no chunk needs it, and no other lock is acquired under it
  std::vector<Member> members_ ABSL_GUARDED_BY(mutex_);  // by rank
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_MEMBERSHIP_H_
