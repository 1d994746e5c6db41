#ifndef EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_STREAM_H_
#define EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_STREAM_H_

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "common/base/pending_count.h"
#include "common/wire/chunk_codec.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

namespace evenshard {

// One Exchange RPC to one shard, on a connection of its own. It sends messages of gradient chunks
// one after another and hands the answers to a handler. It asks for the next message when the one
// before has passed HTTP/2 flow control, which bounds the bytes in flight. Thread-safe.
class ShardStream final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // Receives the stream's events, on gRPC's threads. Must not block. Only NextGradients is called
  // with a lock held: it must not call the stream.
  class Handler {
   public:
    virtual ~Handler() = default;
    // Makes the next GradientChunks for a stream to send, and returns the headers in it. None if
    // there is nothing to send.
    virtual std::vector<GradientHeader> NextGradients(int slot, int stream,
                                                      grpc::ByteBuffer* message) = 0;
    // Called when the message has passed flow control.
    virtual void GradientsSent(absl::Span<const GradientHeader> headers) = 0;
    // Called when a ParameterChunks message has been received. An error ends the stream.
    virtual absl::Status TakeParameters(int slot, const Segments& message) = 0;
    // Called once, when the RPC has ended. `status` is OK after Close().
    virtual void Ended(int slot, uint64_t attempt, const absl::Status& status) = 0;
  };

  struct Options {
    int slot = 0;
    uint64_t attempt = 0;     // of the slot's connection; see ExchangeTransport
    int index = 0;            // of the stream among those to the slot
    bool names_slot = false;  // says to the process which slot it means
    int worker = 0;
    uint64_t incarnation = 0;
  };

  // Starts the RPC. The worker joins the shard when the stream is open. `handler` must outlive the
  // stream.
  ShardStream(const std::shared_ptr<grpc::Channel>& channel, const Options& options,
              Handler* handler);
  // Cancels the RPC unless Close was called, and waits until it has ended.
  ~ShardStream() override;

  // Waits until the shard has accepted the stream. Errors: the status with which the RPC has ended;
  // CANCELLED soon after `stop` is requested.
  absl::Status AwaitOpen(const std::stop_token& stop);

  // Starts to send what the handler gives. Does nothing if the stream is sending or has ended.
  void Wake();

  // Tells the shard that there are no more pushes, upon which it ends the RPC. REQUIRES: every push
  // has been answered.
  void Close();

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
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;  // and until the handler knows what was sent
  std::vector<GradientHeader> writing_ ABSL_GUARDED_BY(mutex_);
  bool writing_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status parameters_error_ ABSL_GUARDED_BY(mutex_);  // returned by TakeParameters
  PendingCount running_;                                   // 1 from the start of the RPC to OnDone
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_GRPC_SHARD_STREAM_H_
