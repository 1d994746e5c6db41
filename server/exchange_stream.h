#ifndef PS_SERVER_EXCHANGE_STREAM_H_
#define PS_SERVER_EXCHANGE_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/chunk_queue.h"
#include "common/received_message.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/gradient.h"
#include "server/push_workers.h"
#include "server/shard.h"

namespace ps {

// One Exchange RPC of one worker: hands received gradient chunks to the shard and sends
// the parameter chunks that come back: as they come, under the schedule FULL front layers
// first. The worker holds its rank while it lives.
//
// Where worker and shard share memory (WorkerBuffers) the messages have no data: the gradient is
// read, and the parameters are written, where the worker has them, by PushWorkers.
//
// Bounds: it reads the next chunk only after the shard has dealt with the last one, and not while
// the worker is too far ahead of others (UpdatePolicy::PushWait), nor while the shard holds more
// than limits.held_bytes of this stream's gradients; where memory is shared, only while no more
// pushes wait than the shard has chunks. In both cases not while more replies than the shard has
// chunks wait for a worker that does not read them. A reply takes memory of its own only while it
// is being written, one at a time.
//
// Lives, by shared_ptr, until the RPC is done and no chunk waits for it any more.
class ExchangeStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                             public ReplySink,
                             public std::enable_shared_from_this<ExchangeStream> {
 public:
  // Starts reading, or ends the RPC at once where this incarnation does not hold the rank.
  // `shard` and `push_workers` must outlive the RPC; `on_done` is called at its end.
  static std::shared_ptr<ExchangeStream> Start(Shard* shard, PushWorkers* push_workers,
                                               uint32_t worker, uint64_t incarnation,
                                               std::function<void(ExchangeStream*)> on_done);

  // Ends the RPC with `status` after the write under way. Idempotent: the first one counts.
  void End(const absl::Status& status);

  void Reply(uint32_t chunk, uint64_t iteration) override;

 private:
  struct PendingReply {
    uint32_t chunk;
    uint64_t iteration;
    uint64_t version;  // of what was written to the worker's memory
  };

  ExchangeStream(Shard* shard, PushWorkers* push_workers, uint32_t worker, uint64_t incarnation,
                 std::function<void(ExchangeStream*)> on_done)
      : shard_(shard),
        push_workers_(push_workers),
        worker_(worker),
        incarnation_(incarnation),
        held_bytes_limit_(shard->config().proto().limits().held_bytes()),
        replies_limit_(shard->store().chunks().size()),
        on_done_(std::move(on_done)),
        replies_(ChunkOrderOf(shard->config().proto().exchange())) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

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
  // Sends the next reply or, when all are out, the end. REQUIRES: no write is under way,
  // and this thread has set writing_.
  void WriteNext();

  Shard* const shard_;
  PushWorkers* const push_workers_;
  const uint32_t worker_;
  const uint64_t incarnation_;
  const size_t held_bytes_limit_;
  const size_t replies_limit_;
  const std::function<void(ExchangeStream*)> on_done_;
  std::shared_ptr<ExchangeStream> self_;    // until OnDone
  bool opened_ = false;                     // counted by the membership; set by Start
  std::shared_ptr<WorkerBuffers> buffers_;  // set by Start; null where memory is not shared

  // Used by the one read, or the one write, that is under way.
  grpc::ByteBuffer read_;
  bool read_holds_ = false;  // the message asks to keep replies back
  grpc::ByteBuffer write_;

  absl::Mutex mutex_;
  size_t shared_pushes_ ABSL_GUARDED_BY(mutex_) = 0;  // that wait for push_workers_
  ChunkQueue<PendingReply> replies_ ABSL_GUARDED_BY(mutex_);
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;  // replies are kept back
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_status_ ABSL_GUARDED_BY(mutex_);
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool read_paused_ ABSL_GUARDED_BY(mutex_) = false;  // no read is under way
  bool alarm_set_ ABSL_GUARDED_BY(mutex_) = false;    // to resume it
  std::unique_ptr<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ps

#endif  // PS_SERVER_EXCHANGE_STREAM_H_
