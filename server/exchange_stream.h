#ifndef PS_SERVER_EXCHANGE_STREAM_H_
#define PS_SERVER_EXCHANGE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/wire/chunk_queue.h"
#include "common/wire/received_message.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/chunk_message.h"
#include "server/gradient.h"
#include "server/push_threads.h"
#include "server/read_gate.h"
#include "server/shard.h"
#include "server/worker_session.h"

namespace ps {

// One Exchange RPC of one worker: hands received gradient chunks to the shard and sends
// the parameter chunks that come back: as they come, under the schedule FULL front layers
// first. The worker holds its rank while it has such a stream.
//
// A worker may open its streams right before it joins, so that its loss is noticed from the moment
// at which it holds its rank. Such a stream waits for the Join.
//
// Where worker and shard share memory (WorkerBuffers) the messages have no data: the gradient is
// read, and the parameters are written, where the worker has them, by PushThreads.
//
// What a stream may keep is bounded by its ReadGate. A reply takes memory of its own only while it
// is being written, one at a time.
//
// Lives, by shared_ptr, until the RPC is done and no chunk waits for it any more.
class ExchangeStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public ReplySink,
                             public std::enable_shared_from_this<ExchangeStream> {
 public:
  struct Options {
    Shard* shard = nullptr;               // must outlive the RPC
    PushThreads* push_threads = nullptr;  // likewise
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    bool join_follows = false;  // the worker joins when it knows that this stream is open
    absl::Time opened;
    std::function<void(ExchangeStream*)> on_done;  // called at the end of the RPC
  };

  static std::shared_ptr<ExchangeStream> Create(const Options& options);

  // Begins to read if the incarnation holds its rank; called again after a Join. Otherwise ends the
  // RPC, or waits if the Join is still to follow.
  void Open();
  uint32_t worker() const { return options_.worker; }
  // Ends the RPC of a stream that was opened before `since` and still waits for its Join.
  void EndWaiting(absl::Time since);

  // Ends the RPC with `status` after the write under way. Idempotent: the first one counts.
  void End(const absl::Status& status);

  void Reply(uint32_t chunk, uint64_t iteration) override;

 private:
  explicit ExchangeStream(const Options& options);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  bool SharesMemory() const { return session_->buffers() != nullptr; }
  // Decodes `read_` and pushes it, or has it pushed.
  absl::Status HandleGradient();
  absl::Status PushReceived(std::shared_ptr<const ReceivedMessage> message,
                            Decoded<GradientHeader> decoded);
  absl::Status QueueShared(const Decoded<GradientHeader>& decoded);
  void PushShared(const GradientHeader& header);
  // A gradient of this stream was dropped.
  void Release(size_t bytes);
  // Starts the next read unless it must wait.
  void ResumeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Has the RPC end with `status` unless it ends already. Returns whether this thread is to call
  // WriteNext, after unlocking.
  bool BeginEnd(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the next reply or, when all are out, the end. REQUIRES: no write is under way,
  // and this thread has set writing_.
  void WriteNext();

  const Options options_;
  Shard* const shard_;
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  // Null until the stream is open; constant from then on, and so for all reads and replies.
  std::shared_ptr<WorkerSession> session_;

  // Used by the one read, or the one write, that is under way.
  grpc::ByteBuffer read_;
  bool read_holds_ = false;  // the message asks to keep replies back
  grpc::ByteBuffer write_;

  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  ReadGate gate_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // of the gate's timer
  ChunkQueue<PendingReply> replies_ ABSL_GUARDED_BY(mutex_);
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;  // replies are kept back
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ps

#endif  // PS_SERVER_EXCHANGE_STREAM_H_
