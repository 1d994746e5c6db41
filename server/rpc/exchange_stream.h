#ifndef EVENSHARD_SERVER_RPC_EXCHANGE_STREAM_H_
#define EVENSHARD_SERVER_RPC_EXCHANGE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/wire/chunk_queue.h"
#include "common/wire/message_slices.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/chunk_message.h"
#include "server/rpc/read_gate.h"
#include "server/session/worker_session.h"
#include "server/shard/chunk_threads.h"
#include "server/shard/shard.h"
#include "server/update/gradient.h"

namespace evenshard {

// One Exchange RPC of one worker. It hands the gradient chunks that it receives to the shard, and
// sends back the parameter chunks: in the order in which they come, or front layers first under the
// schedule FULL. A worker that has joined holds its rank as long as it has an open stream.
//
// A worker may open its streams right before it joins, so that its loss is noticed from the moment
// at which it holds its rank. Such a stream waits for the Join.
//
// If the worker and the shard share memory (WorkerBuffers), messages have no data. ChunkThreads
// take such pushes: gradients are read, and parameters are written, in the worker's memory.
//
// The ReadGate bounds what a stream keeps. A message of replies is built right before it is
// written, so that only one takes memory. Small replies that wait share a message.
//
// A stream is owned by shared pointers: its own until the RPC is done, and those of the pushes that
// have not been answered. Thread-safe.
class ExchangeStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public ReplySink,
                             public std::enable_shared_from_this<ExchangeStream> {
 public:
  struct Options {
    std::shared_ptr<Shard> shard;
    ChunkThreads* push_threads = nullptr;  // must outlive the RPC
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    bool join_follows = false;  // the worker will join when it knows that the shard has the stream
    absl::Time opened;
    std::function<void(ExchangeStream*)> on_done;  // called when the RPC is done
  };

  static std::shared_ptr<ExchangeStream> Create(const Options& options);

  // Begins to read if the incarnation holds its rank. Otherwise ends the RPC, or leaves the stream
  // waiting if its Join will follow. Called once by the service, and again after every Join of the
  // worker. Has no effect on an open stream.
  void Open();
  uint32_t worker() const { return options_.worker; }
  const Shard* shard() const { return shard_; }
  // Ends the RPC of a stream that was opened before `since` and still waits for its Join.
  void EndWaiting(absl::Time since);

  // Ends the RPC with `status` after the writes under way: of a message, and to the memory that the
  // worker shares. Only the first call has an effect.
  void End(const absl::Status& status);

  void Reply(uint32_t chunk, uint64_t iteration, bool dropped) override;

 private:
  explicit ExchangeStream(const Options& options);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // How the RPC ends when the worker sends nothing more.
  absl::Status HalfClosed();
  bool SharesMemory() const { return session_->buffers() != nullptr; }
  // Decodes the message in `read_` and pushes its gradients or, with shared memory, queues them.
  absl::Status HandleGradients();
  // Returns what keeps the message. The stream counts its gradients' bytes as held until then.
  std::shared_ptr<const void> Hold(std::shared_ptr<const ReceivedMessage> message, size_t bytes);
  // Queues pushes for ChunkThreads, small ones together.
  absl::Status QueueShared(const std::vector<Decoded<GradientHeader>>& chunks);
  void PushShared(const std::vector<GradientHeader>& headers);
  // Counts the bytes of received gradients as freed.
  void Release(size_t bytes);
  // Whether the replies stay in the queue for now.
  bool HoldsReplies() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return hold_ && !ending_ && !gate_.IsStoppedBy(replies_.size());
  }
  // Starts the next read if the gate permits it.
  void ResumeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks the RPC as ending with `status` unless it has been marked before. Returns whether the
  // caller must call WriteNext after it has unlocked.
  bool BeginEnd(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Sends the next reply, or finishes the RPC if it is ending and all replies have been sent and
  // written to the worker's memory.
  // REQUIRES: no write is under way, and this thread has set writing_.
  void WriteNext();

  const Options options_;
  Shard* const shard_;
  std::shared_ptr<ExchangeStream> self_;  // until OnDone

  // Null until the stream is open, and constant afterwards. Reads and replies need an open stream,
  // so they may use it without the lock.
  std::shared_ptr<WorkerSession> session_;

  // Used by the read or by the write that is under way. There is at most one of each.
  grpc::ByteBuffer read_;
  bool read_holds_ = false;  // the last chunk in read_ sets `hold`
  grpc::ByteBuffer write_;

  absl::Mutex mutex_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  ReadGate gate_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);  // the gate's timer
  ChunkQueue<PendingReply> replies_ ABSL_GUARDED_BY(mutex_);
  // Chunks that were pushed and not answered, with the versions that the worker has.
  absl::flat_hash_map<uint32_t, uint64_t> owed_ ABSL_GUARDED_BY(mutex_);
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;  // the worker asks for that
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  int shared_writes_ ABSL_GUARDED_BY(mutex_) = 0;  // under way, to the worker's memory
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_EXCHANGE_STREAM_H_
