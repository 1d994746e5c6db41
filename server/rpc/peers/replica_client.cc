#include "server/rpc/peers/replica_client.h"

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/base/pending_count.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "common/net/unix_socket.h"
#include "common/wire/exchange_metadata.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/client_callback.h"
#include "proto/replication.grpc.pb.h"
#include "server/rpc/peers/replica_message.h"

namespace evenshard {
namespace {

// One Replicate RPC.
class ReplicaSender final : public ReplicaStream,
                            private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  ReplicaSender(std::shared_ptr<grpc::Channel> channel, int slot, uint64_t view,
                const ProcessId& primary, Receiver* receiver)
      : channel_(std::move(channel)), receiver_(receiver) {
    context_.AddMetadata(kSlotMetadata, absl::StrCat(slot));
    context_.AddMetadata(kViewMetadata, absl::StrCat(view));
    context_.AddMetadata(kIncarnationMetadata, absl::StrCat(primary.incarnation()));
    grpc::GenericStub stub(channel_);
    stub.PrepareBidiStreamingCall(&context_, "/evenshard.v1.Replication/Replicate", {}, this);
    running_.Add();
    StartRead(&read_);
    AddHold();  // because Send starts writes outside of gRPC's callbacks
    StartCall();
  }

  ~ReplicaSender() override {
    context_.TryCancel();
    Stop();
    running_.AwaitZero();
  }

  void Send(ReplicaMessage message) override {
    absl::MutexLock lock(&mutex_);
    if (stopped_) return;
    queue_.push_back(std::move(message));
    if (!is_writing_) WriteNext();
  }

 private:
  // Until the replica knows who sends, it takes little (limits.strangers.asking_burst_bytes).
  void OnReadInitialMetadataDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    if (ok) WriteNext();
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    is_writing_ = !stopped_ && !queue_.empty();
    if (!is_writing_) return;
    write_ = EncodeReplica(queue_.front());
    queue_.pop_front();
    StartWrite(&write_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      write_.Clear();
      is_writing_ = false;
      if (ok) {
        WriteNext();
        return;
      }
    }
    Stop();
  }

  void OnReadDone(bool ok) override {
    ReplicaReceipt receipt;
    if (!ok || !grpc::SerializationTraits<ReplicaReceipt>::Deserialize(&read_, &receipt).ok()) {
      if (ok) context_.TryCancel();
      Stop();
      return;
    }
    receiver_->Confirmed(receipt);
    StartRead(&read_);
  }

  void OnDone(const grpc::Status& status) override {
    receiver_->Ended(status.ok() ? absl::UnavailableError("the replica ended it")
                                 : FromGrpc(status));
    running_.Remove();
  }

  // Lets gRPC call OnDone when no operation is pending. Idempotent.
  void Stop() {
    {
      absl::MutexLock lock(&mutex_);
      if (std::exchange(stopped_, true)) return;
      queue_.clear();
    }
    RemoveHold();
  }

  const std::shared_ptr<grpc::Channel> channel_;
  Receiver* const receiver_;
  grpc::ClientContext context_;
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;

  absl::Mutex mutex_;
  std::deque<ReplicaMessage> queue_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = true;  // or the stream is not open yet
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  PendingCount running_;  // 1 from the start of the RPC to OnDone
};

}  // namespace

std::unique_ptr<ReplicaStream> ReplicaClient::Open(int slot, int lane, uint64_t view,
                                                   const ProcessId& primary, const ProcessId& copy,
                                                   ReplicaStream::Receiver* receiver) {
  return std::make_unique<ReplicaSender>(ChannelTo(slot, lane, copy), slot, view, primary,
                                         receiver);
}

std::shared_ptr<grpc::Channel> ReplicaClient::ChannelTo(int slot, int lane, const ProcessId& copy) {
  const auto connect = [&] {
    return CreateBulkChannel(copy.address(), config_,
                             {.role = Role::kShard, .index = static_cast<int>(copy.process())});
  };
  // That of a unix socket is connected at once, and never again.
  if (UnixPath(copy.address()).has_value()) return connect();
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<grpc::Channel>& channel = channels_[{slot, lane}];
  if (channel == nullptr) channel = connect();
  // The caller paces its attempts itself.
  grpc::experimental::ChannelResetConnectionBackoff(channel.get());
  return channel;
}

void ReplicaClient::Disconnect(int slot) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(channels_, [slot](const auto& kept) { return kept.first.first == slot; });
}

}  // namespace evenshard
