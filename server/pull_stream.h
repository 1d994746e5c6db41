#ifndef PS_SERVER_PULL_STREAM_H_
#define PS_SERVER_PULL_STREAM_H_

#include <atomic>
#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
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

// The Pulls that a shard serves at the moment. Each holds a copy of a chunk, and what gRPC buffers
// of it, until it is read: their number is bounded, and those that nobody reads are ended.
// Thread-safe.
class OpenPulls {
 public:
  // Every worker may pull at the same time, as at the start of a run, and some readers besides,
  // such as psctl save. A Pull of which no chunk has been read for `patience` is ended.
  OpenPulls(int workers, absl::Duration patience, const Clock* clock)
      : limit_(workers + kReaders), patience_(patience), clock_(clock) {}

  // Errors: RESOURCE_EXHAUSTED where the shard serves as many as it may.
  absl::Status Add(PullStream* pull);
  void Remove(PullStream* pull);

  // Ends with DEADLINE_EXCEEDED what nobody reads. To be called from time to time.
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

// One Pull RPC: sends every chunk of the shard, each a copy of its parameters at the
// moment of sending, in the encoding that was asked for. Deletes itself when the RPC is done.
class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  // `request`: a serialised PullRequest. `context` is the RPC's; `shard` and `open` must outlive
  // it.
  PullStream(grpc::CallbackServerContext* context, Shard* shard, OpenPulls* open,
             const grpc::ByteBuffer& request);

  // When the latest write began; it ends when the chunk has passed flow control.
  absl::Time write_began() const { return absl::FromUnixNanos(write_began_); }

  // Ends the RPC at once, in the middle of a chunk too. REQUIRES: OnDone has not returned.
  void Cancel(const absl::Status& reason);

 private:
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  // OK where the shard can answer `request`.
  absl::Status Check(const PullRequest& request) const;
  void WriteNext();

  grpc::CallbackServerContext* const context_;
  Shard* const shard_;
  OpenPulls* const open_;
  Encoding encoding_ = FLOAT32;
  size_t next_ = 0;  // index of the next chunk to send
  grpc::ByteBuffer write_;
  std::atomic<int64_t> write_began_;  // Unix nanoseconds
};

}  // namespace ps

#endif  // PS_SERVER_PULL_STREAM_H_
