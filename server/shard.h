#ifndef PS_SERVER_SHARD_H_
#define PS_SERVER_SHARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "proto/admin.pb.h"
#include "proto/parameter_server.pb.h"
#include "server/gradient.h"
#include "server/membership.h"
#include "server/parameter_store.h"
#include "server/shard_counters.h"
#include "server/stall_log.h"
#include "server/update_policy.h"
#include "server/worker_session.h"

namespace ps {

// One parameter-server shard without its RPCs: the part of the parameters it owns, who
// takes part, and what a push does. Thread-safe.
//
// The way of a gradient: exchange_stream.cc receives it -> Push checks it ->
// update_policy.cc decides -> parameter_store.cc adds it up and applies the optimizer ->
// the policy calls the worker's ReplySink -> exchange_stream.cc sends the chunk.
//
// Lock order: StoredChunk::mutex, then a stream's own, then Membership's or failure_mutex_.
class Shard {
 public:
  // `config` and `clock` must outlive the shard. Errors: OUT_OF_RANGE for the index,
  // RESOURCE_EXHAUSTED for its memory.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(const Config* config, int index,
                                                       const Clock* clock);

  int index() const { return index_; }
  uint64_t incarnation() const { return incarnation_; }
  const Config& config() const { return config_; }
  const Clock& clock() const { return *clock_; }
  ParameterStore& store() { return *store_; }
  bool Owns(uint32_t chunk_id) const { return store_->IndexOf(chunk_id) >= 0; }
  // The chunk of that id, which the shard must own.
  StoredChunk& chunk(uint32_t id) { return store_->chunks()[store_->IndexOf(id)]; }

  // Takes a rank; the answer has the iteration to start from. Errors: those of
  // Membership::Join; FAILED_PRECONDITION where the worker's config or plan is another
  // (names the fields that differ, where the request has its config), the worker does not
  // speak an encoding of the exchange, or the run has failed.
  absl::StatusOr<JoinResponse> Join(const JoinRequest& request, const std::string& address);

  // Gives the rank up. Under SYNC a request with an error fails the run for the others,
  // if its sender has taken part.
  absl::Status Leave(const LeaveRequest& request);

  // A stream of a worker that has joined, and its end, which for its last one before it has left
  // is the worker's loss: under SYNC that fails the run. Errors of the first: FAILED_PRECONDITION
  // where that incarnation does not hold the rank; the failure of the run, if that was why.
  absl::StatusOr<std::shared_ptr<WorkerSession>> OpenStream(uint32_t worker, uint64_t incarnation);
  void CloseStream(WorkerSession* session);

  // Keeps what a worker uses, for Stats. Errors: FAILED_PRECONDITION where that incarnation does
  // not hold the rank; INVALID_ARGUMENT for more bytes than usage can have.
  absl::Status Report(const ReportRequest& request);

  // Takes one gradient chunk from a stream of that session. Errors: INVALID_ARGUMENT for another
  // worker's push, an unknown chunk, an encoding that is not the config's, a length that is not
  // the chunk's, a version that does not exist, a non-finite value (which under REJECT also fails
  // the run); FAILED_PRECONDITION for a wrong iteration, and where the session's rank has passed
  // on; OUT_OF_RANGE, which fails the run, where the update leaves float32's range; the failure of
  // the run.
  absl::Status Push(WorkerSession& session, Gradient gradient, std::shared_ptr<ReplySink> sink);
  // See UpdatePolicy::PushWait.
  absl::Duration PushWait(uint32_t worker) const { return policy_->PushWait(worker); }

  // See UpdatePolicy::RepliesMayBorrow.
  bool RepliesMayBorrow() const { return policy_->RepliesMayBorrow(); }
  // Counts parameters of so many bytes that go to `session`'s worker, or, null, to whoever pulls.
  void CountReply(WorkerSession* session, uint64_t bytes);
  // Of gradients and parameters, in and out, since the start.
  uint64_t bytes_moved() const { return counters_.received.bytes_in() + counters_.bytes_out; }

  // To be called about every second: fails the run where an update has waited for longer than
  // limits.exchange_seconds, or for a worker that has finished; takes their ranks from workers
  // that have joined and opened no stream; and logs who is waited for.
  void CheckWaits();

  // Takes no part in the run any more, without calling it a failure to anybody: what
  // ends because of this shutdown is nobody's fault. Returns false where the run had
  // ended already.
  bool Close(const absl::Status& reason);

  // The first failure of the run, or OK. A failed shard keeps its parameters, answers
  // Pull and GetStats, and refuses Join and Push.
  absl::Status failure() const;
  // Calls `listener` once, with the failure. REQUIRES: called before any RPC.
  void OnFailure(std::function<void(const absl::Status&)> listener);

  ShardStats Stats() const;

 private:
  Shard(const Config* config, int index, const Clock* clock);

  absl::Status CheckGradient(const Gradient& gradient, const Chunk& chunk);
  // `how`: "its connection ended before it left".
  void WorkerLost(uint32_t rank, absl::string_view how);
  // "worker 2 (...), worker 5 (...) and 3 more"
  std::string Describe(const std::vector<uint32_t>& ranks) const;
  void Fail(const absl::Status& failure);

  const Config& config_;
  const int index_;
  const Clock* const clock_;
  const absl::Time start_time_;
  const uint64_t incarnation_;
  std::function<void(const absl::Status&)> on_failure_;  // constant once RPCs run
  StallLog stall_log_;                                   // of CheckWaits

  // Synchronised by themselves.
  ShardCounters counters_;
  Membership membership_;
  std::unique_ptr<ParameterStore> store_;
  std::unique_ptr<UpdatePolicy> policy_;

  std::atomic<bool> failed_{false};  // set after failure_; read for every chunk
  mutable absl::Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);
};

}  // namespace ps

#endif  // PS_SERVER_SHARD_H_
