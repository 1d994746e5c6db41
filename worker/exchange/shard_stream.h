#ifndef PS_WORKER_EXCHANGE_SHARD_STREAM_H_
#define PS_WORKER_EXCHANGE_SHARD_STREAM_H_

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/pending_count.h"
#include "common/wire/chunk_codec.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"
#include "worker/exchange/push_queue.h"

namespace ps {

// One Exchange RPC to one shard, on a connection of its own: sends gradient chunks one
// after another and passes on what comes back. Bytes in flight are bounded by HTTP/2 flow
// control: a chunk is taken from the queue when the one before has passed it. Thread-safe.
class ShardStream final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  // What the stream calls, from gRPC's threads. Must not block.
  class Handler {
   public:
    virtual ~Handler() = default;
    // The GradientChunk message to send for `chunk`.
    virtual grpc::ByteBuffer GradientMessage(uint32_t chunk) = 0;
    // The message has passed flow control.
    virtual void GradientSent(uint32_t chunk) = 0;
    // A ParameterChunk message has come. An error ends the stream with it.
    virtual absl::Status TakeParameters(int shard, const Segments& message) = 0;
    // The RPC has ended; after Close() with OK. Called once.
    virtual void StreamEnded(int shard, const absl::Status& status) = 0;
  };

  struct Options {
    int shard = 0;
    int index = 0;  // among the streams to that shard
    int worker = 0;
    uint64_t incarnation = 0;
    PushQueue* queue = nullptr;  // of that shard; must outlive the stream
  };

  // Starts the RPC, for a worker that joins when it is open. `handler` must outlive the stream.
  ShardStream(const std::shared_ptr<grpc::Channel>& channel, const Options& options,
              Handler* handler);
  // Cancels what is not closed, and waits for the end of the RPC.
  ~ShardStream() override;

  // Waits until the shard has the stream. Errors: that with which the RPC has ended;
  // DEADLINE_EXCEEDED after `timeout`; CANCELLED soon after `stop` is requested.
  absl::Status AwaitOpen(absl::Duration timeout, const std::stop_token& stop);

  // Begins to send what is in the queue, unless it does already or has ended.
  void Wake();

  // Ends the RPC in good order. REQUIRES: every push has been answered.
  void Close();

 private:
  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Lets OnDone come once nothing is under way. Idempotent.
  void StopWriting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Ends AwaitOpen. Idempotent: the first one counts.
  void SetOpen(const absl::Status& status);

  const Options options_;
  Handler* const handler_;
  std::once_flag open_once_;
  std::promise<absl::Status> open_;
  grpc::ClientContext context_;
  grpc::ByteBuffer read_message_;
  grpc::ByteBuffer write_message_;

  absl::Mutex mutex_;
  uint32_t writing_chunk_ ABSL_GUARDED_BY(mutex_) = 0;  // the chunk of the last write
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status parameters_error_ ABSL_GUARDED_BY(mutex_);  // of TakeParameters
  PendingCount running_;                                   // the RPC, from its start to OnDone
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_SHARD_STREAM_H_
