#ifndef PS_SERVER_PULL_STREAM_H_
#define PS_SERVER_PULL_STREAM_H_

#include <atomic>
#include <memory>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/parameter_server.pb.h"
#include "server/shard.h"

namespace ps {

class PullStream;

// The Pulls that a shard is serving. Each of them keeps a copy of a chunk, besides what gRPC
// buffers, until its client reads it. So their number is bounded, and those that nobody reads are
// ended. Thread-safe.
class OpenPulls {
 public:
  // Permits one Pull for each worker, since all workers pull at the start of a run, and a few for
  // other readers such as psctl save. EndUnread ends a Pull of which no chunk has been read for
  // `patience`. `clock` must outlive this.
  OpenPulls(int workers, absl::Duration patience, const Clock* clock)
      : limit_(workers + kReaders), patience_(patience), clock_(clock) {}

  // Errors: RESOURCE_EXHAUSTED if the shard is serving as many Pulls as it may.
  absl::Status Add(PullStream* pull);
  void Remove(PullStream* pull);

  // Ends the Pulls that nobody reads with DEADLINE_EXCEEDED. Called from time to time.
  void EndUnread();

  absl::Time Now() const { return clock_->Now(); }

 private:
  static constexpr int kReaders = 8;

  const size_t limit_;
  const absl::Duration patience_;
  const Clock* const clock_;
  absl::Mutex mutex_;
  std::set<PullStream*> pulls_ ABSL_GUARDED_BY(mutex_);
};

// One Pull RPC. It sends every chunk of the shard in the encoding that was asked for, with a copy
// of the parameters that is made when the chunk's turn comes. Deletes itself when the RPC is done.
class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // `context` and `open` must outlive the RPC. An error as `request` ends the RPC with it.
  PullStream(grpc::CallbackServerContext* context, std::shared_ptr<Shard> shard, OpenPulls* open,
             const absl::StatusOr<PullRequest>& request);

  // Returns when the latest write began. A write ends when flow control has let the chunk pass.
  absl::Time write_began() const { return absl::FromUnixNanos(write_began_); }

  // Ends the RPC at once, even in the middle of a chunk. REQUIRES: OnDone has not removed the Pull
  // from its OpenPulls.
  void Cancel(const absl::Status& reason);

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  // Returns OK if the shard can answer `request`.
  absl::Status Check(const PullRequest& request) const;
  void WriteNext();

  grpc::CallbackServerContext* const context_;
  const std::shared_ptr<Shard> shard_;  // null only after an error
  OpenPulls* const open_;
  Encoding encoding_ = FLOAT32;
  size_t next_ = 0;  // index of the next chunk to send
  grpc::ByteBuffer write_;
  std::atomic<int64_t> write_began_;  // Unix nanoseconds
};

}  // namespace ps

#endif  // PS_SERVER_PULL_STREAM_H_
