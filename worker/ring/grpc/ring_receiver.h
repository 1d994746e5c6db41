#ifndef EVENSHARD_WORKER_RING_GRPC_RING_RECEIVER_H_
#define EVENSHARD_WORKER_RING_GRPC_RING_RECEIVER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "common/wire/message_slices.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "worker/ring/core/ring_round.h"

namespace evenshard {

// A stream from a worker's predecessor in the ring. It hands what it receives to the round, without
// a copy, and reads no further while sums of more than limits.held_bytes wait for this worker's own
// gradient. A stream is owned by shared pointers: its own until the RPC is done, and those of the
// sums that wait. Thread-safe.
class RingReceiver final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                           public std::enable_shared_from_this<RingReceiver> {
 public:
  struct Options {
    RingWay way = RingWay::kReduce;
    size_t held_bytes = 0;
    RingRound* round = nullptr;  // must outlive the RPC
    // Called when the round has refused a message, and has failed.
    std::function<void()> on_failure;
    // Called when the RPC is done. `was_closed`: the predecessor has sent all that it wanted to,
    // or this worker has ended the stream. Otherwise it was lost.
    std::function<void(RingReceiver*, bool was_closed)> on_done;
  };

  static std::shared_ptr<RingReceiver> Create(const Options& options);

  // Ends the RPC with `status`. Only the first call has an effect.
  void End(const absl::Status& status);

 private:
  explicit RingReceiver(const Options& options) : options_(options) {}

  void OnReadDone(bool ok) override;
  void OnCancel() override { was_cancelled_ = true; }
  void OnDone() override;

  absl::Status TakeMessage();
  // Returns what keeps the message. Its bytes count as held until then.
  std::shared_ptr<const void> Hold(std::shared_ptr<const ReceivedMessage> message, size_t bytes);
  void Release(size_t bytes);
  // Starts the next read if not too much is held.
  void ResumeRead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  std::shared_ptr<RingReceiver> self_;  // until OnDone
  grpc::ByteBuffer read_;               // used by the read that is under way
  std::atomic<bool> was_cancelled_ = false;

  absl::Mutex mutex_;
  bool is_reading_ ABSL_GUARDED_BY(mutex_) = true;
  bool is_ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_ended_here_ ABSL_GUARDED_BY(mutex_) = false;
  size_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_GRPC_RING_RECEIVER_H_
