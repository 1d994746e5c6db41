#ifndef EVENSHARD_SERVER_RPC_PULL_STREAM_H_
#define EVENSHARD_SERVER_RPC_PULL_STREAM_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/chunk_source.h"

namespace evenshard {

class PullStream;

// The streams of one RPC, Pull or Snapshot, that a process is serving. Each of them keeps a copy of
// a chunk, besides what gRPC buffers, until its client reads it. So their number is bounded, and
// those that nobody reads are ended. Thread-safe.
class OpenPulls {
 public:
  struct Options {
    std::string name;              // of the RPC, for errors
    size_t limit = 0;              // how many there may be at a time
    std::string limit_means = {};  // completes "... Pulls, the most at a time"
    // EndUnread ends a stream of which no chunk has been read for so long.
    absl::Duration patience;
    const Clock* clock = nullptr;  // must outlive this
  };

  explicit OpenPulls(Options options) : options_(std::move(options)) {}

  const std::string& name() const { return options_.name; }

  // Errors: RESOURCE_EXHAUSTED if there are as many as there may be.
  absl::Status Add(PullStream* pull);
  void Remove(PullStream* pull);

  // Ends the streams that nobody reads with DEADLINE_EXCEEDED. Called from time to time.
  void EndUnread();

  absl::Time Now() const { return options_.clock->Now(); }

 private:
  const Options options_;
  absl::Mutex mutex_;
  std::set<PullStream*> pulls_ ABSL_GUARDED_BY(mutex_);
};

// One Pull or Snapshot RPC: sends what its source gives. It owns itself until the RPC is done.
class PullStream final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                         public std::enable_shared_from_this<PullStream> {
 public:
  using MakeSource =
      absl::FunctionRef<absl::StatusOr<std::unique_ptr<ChunkSource>>(std::function<void()> wake)>;
  // Starts to answer. `context` and `open` must outlive the RPC. `make_source` is called in this
  // call; its error ends the RPC.
  static PullStream* Start(grpc::CallbackServerContext* context, OpenPulls* open,
                           MakeSource make_source);

  // Returns when the latest write began, or InfiniteFuture while there is nothing to write. A write
  // ends when flow control has let the chunk pass.
  absl::Time write_began() const {
    const int64_t began = write_began_;
    return began == kNever ? absl::InfiniteFuture() : absl::FromUnixNanos(began);
  }

  // Ends the RPC at once, even in the middle of a chunk. REQUIRES: OnDone has not removed the
  // stream from its OpenPulls.
  void Cancel(const absl::Status& reason);

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  PullStream(grpc::CallbackServerContext* context, OpenPulls* open)
      : context_(context), open_(open), write_began_(absl::ToUnixNanos(open->Now())) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Asks the source, and writes, waits or ends the RPC. REQUIRES: kBusy.
  void Advance();
  // Has GoOn called soon, in a thread of gRPC's, because the source's caller holds locks.
  void Wake();
  void SetAlarm(absl::Duration from_now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Asks the source again, if the stream has waited for it.
  void GoOn();
  // Begins to wait for the source, `pause` at most. Returns false if it has called meanwhile.
  bool Wait(absl::Duration pause);
  // REQUIRES: kBusy.
  void End(const grpc::Status& status);

  grpc::CallbackServerContext* const context_;
  OpenPulls* const open_;
  std::unique_ptr<ChunkSource> source_;  // null after an error
  grpc::ByteBuffer write_;
  std::atomic<int64_t> write_began_;  // Unix nanoseconds

  absl::Mutex mutex_;  // acquired after any other lock
  enum class State {
    kBusy,   // one thread asks the source, or a write is under way
    kWaits,  // for the source
    kEnded,
  };
  State state_ ABSL_GUARDED_BY(mutex_) = State::kBusy;
  bool is_woken_ ABSL_GUARDED_BY(mutex_) = false;  // while it was busy
  bool is_cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // calls GoOn
  std::shared_ptr<PullStream> self_;                            // until OnDone
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PULL_STREAM_H_
