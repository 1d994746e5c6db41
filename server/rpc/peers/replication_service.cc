#include "server/rpc/peers/replication_service.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/security/rights.h"
#include "common/wire/exchange_metadata.h"
#include "common/wire/message_slices.h"
#include "common/wire/metadata_number.h"
#include "server/recovery/slot_replica.h"
#include "server/rpc/peers/replica_message.h"

namespace evenshard {

// One Replicate RPC: takes message after message, and confirms each. Deletes itself when the RPC is
// done.
class ReplicationService::Receiver final : public BidiReactor {
 public:
  Receiver(ReplicationService* service, std::shared_ptr<SlotReplica> copy, uint64_t view,
           uint64_t primary)
      : service_(service), copy_(std::move(copy)), view_(view), primary_(primary) {
    StartSendInitialMetadata();  // tells the primary that this process knows it
    StartRead(&read_);
  }

  // Ends the RPC after the write under way. Only the first call has an effect.
  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return;
      end_ = status;
    }
    Write();
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      End(absl::OkStatus());
      return;
    }
    const ReceivedMessage received(&read_);
    absl::StatusOr<ReplicaMessage> message = DecodeReplica(received.segments());
    const absl::StatusOr<ReplicaReceipt> receipt =
        message.ok() ? copy_->Take(view_, primary_, *message)
                     : WithKind(ErrorDetail::RUN_FAILED, message.status());
    if (!receipt.ok()) {
      End(receipt.status());
      return;
    }
    {
      absl::MutexLock lock(&mutex_);
      receipts_.push_back(*receipt);
    }
    Write();
    StartRead(&read_);
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      is_writing_ = false;
      if (!ok && !end_.has_value()) end_ = absl::OkStatus();
    }
    Write();  // or finishes the RPC, which may have been told to end during the write
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&service_->mutex_);
      service_->receivers_.erase(this);
    }
    delete this;
  }

  // Writes the next receipt unless a write is under way, or ends the RPC if it is ending.
  void Write() {
    ReplicaReceipt receipt;
    std::optional<absl::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      if (is_writing_ || finished_) return;
      if (end_.has_value()) {
        finished_ = true;
        end = end_;
      } else if (receipts_.empty()) {
        return;
      } else {
        receipt = receipts_.front();
        receipts_.pop_front();
        is_writing_ = true;
      }
    }
    if (end.has_value()) {
      Finish(ToGrpc(*end));
      return;
    }
    bool owns_buffer = false;
    // Serialising a message without required fields cannot fail.
    (void)grpc::SerializationTraits<ReplicaReceipt>::Serialize(receipt, &write_, &owns_buffer);
    StartWrite(&write_);
  }

  ReplicationService* const service_;
  const std::shared_ptr<SlotReplica> copy_;
  const uint64_t view_;
  const uint64_t primary_;
  grpc::ByteBuffer read_;
  grpc::ByteBuffer write_;

  absl::Mutex mutex_;
  std::deque<ReplicaReceipt> receipts_ ABSL_GUARDED_BY(mutex_);
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

BidiReactor* ReplicationService::Replicate(CallContext* context) {
  absl::StatusOr<Receiver*> receiver = NewReceiver(*context);
  if (!receiver.ok()) return new Refused<BidiReactor>(receiver.status());
  absl::MutexLock lock(&mutex_);
  // gRPC does not call OnDone before this method has returned the reactor.
  receivers_.insert(*receiver);
  return *receiver;
}

absl::StatusOr<ReplicationService::Receiver*> ReplicationService::NewReceiver(
    const CallContext& context) {
  ASSIGN_OR_RETURN(const uint32_t slot, MetadataNumber<uint32_t>(context, kSlotMetadata));
  ASSIGN_OR_RETURN(const uint64_t view, MetadataNumber<uint64_t>(context, kViewMetadata));
  ASSIGN_OR_RETURN(const uint64_t primary, MetadataNumber<uint64_t>(context, kIncarnationMetadata));
  ASSIGN_OR_RETURN(const int process, host_->PrimaryProcess(view, slot));
  RETURN_IF_ERROR(CheckCaller(context, *security_, {.role = Role::kShard, .index = process}));
  std::shared_ptr<SlotReplica> copy = host_->Copy(static_cast<int>(slot));
  if (copy == nullptr) {
    return absl::UnavailableError(absl::StrCat("this process does not hold the replica of slot ",
                                               slot, " in view ", host_->view().number()));
  }
  return new Receiver(this, std::move(copy), view, primary);
}

void ReplicationService::EndStreams(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  for (Receiver* receiver : receivers_) receiver->End(status);
}

}  // namespace evenshard
