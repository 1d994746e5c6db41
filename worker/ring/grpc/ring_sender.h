#ifndef EVENSHARD_WORKER_RING_GRPC_RING_SENDER_H_
#define EVENSHARD_WORKER_RING_GRPC_RING_SENDER_H_

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/pending_count.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {

// A stream to a worker's successor in the ring, Reduce or Gather. It sends one message after
// another, and asks for the next one when the one before has passed HTTP/2 flow control, which
// bounds the bytes in flight. Thread-safe.
class RingSender final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Receives the stream's events, on gRPC's threads and on those that call Wake. Must not block.
  // Only NextMessage is called with a lock held: it must not call the sender.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Makes the next message. Returns false if there is nothing to send.
    virtual bool NextMessage(RingWay way, int stream, grpc::ByteBuffer* message) = 0;
    // A message has left, or never will, since the stream has ended.
    virtual void MessageLeft() = 0;
    // Called once, when the RPC has ended.
    virtual void SenderEnded(const absl::Status& status) = 0;
  };

  struct Options {
    RingWay way = RingWay::kReduce;
    int stream = 0;  // its number among those of this way
    int worker = 0;
    uint64_t incarnation = 0;
  };

  // Starts the RPC. `handler` must outlive the sender.
  RingSender(const std::shared_ptr<grpc::Channel>& channel, const Options& options,
             Handler* handler);
  // Cancels the RPC unless it has been closed and has ended, and waits for its end.
  ~RingSender() override;

  // Waits until the successor has accepted the stream. Calls `check` about every 50 ms. Errors: the
  // status with which the RPC has ended; what `check` returns.
  absl::Status AwaitOpen(const std::function<absl::Status()>& check);

  // Starts to send what the handler gives. Does nothing if the stream is sending or has ended.
  void Wake();
  // Tells the successor that no more comes, upon which it ends the RPC. REQUIRES: everything has
  // been sent.
  void Close();
  // Returns whether the RPC has ended within `timeout`.
  bool AwaitEnded(absl::Duration timeout) { return running_.AwaitZeroFor(timeout); }

 private:
  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets gRPC call OnDone when no operation is pending. Idempotent.
  void StopWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends AwaitOpen. Calls after the first have no effect.
  void SetOpen(const absl::Status& status);

  const Options options_;
  Handler* const handler_;
  std::once_flag open_once_;
  std::promise<absl::Status> open_;
  grpc::ClientContext context_;
  grpc::ByteBuffer read_message_;
  grpc::ByteBuffer write_message_;

  absl::Mutex mutex_;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  PendingCount running_;  // 1 from the start of the RPC to OnDone
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_GRPC_RING_SENDER_H_
