#include "server/rpc/state_relay.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace evenshard {

// The meeting of a sender's call with a receiver's. Thread-safe.
class StateRelay::Transfer {
 public:
  absl::Status OpenReceiver(std::function<void()> wake);
  absl::StatusOr<ChunkSource::Next> Take();
  void CloseReceiver();

  absl::Status OpenSender(Sender* sender);
  void Put(MessageBytes message);
  // The sender has no further message: it has sent everything, or its call has ended early, which
  // the receiver tells by what it has got. Does nothing for a sender that is not the open one.
  void CloseSender(Sender* sender);

 private:
  enum class End : uint8_t { kNotYet, kOpen, kClosed };

  // Has the next message read if there is room for it, or ends the sender's call if nobody takes
  // what it brings.
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;  // gRPC is told to read and to wake a call under it
  End receiver_ ABSL_GUARDED_BY(mutex_) = End::kNotYet;
  End end_of_sender_ ABSL_GUARDED_BY(mutex_) = End::kNotYet;
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);  // while the receiver is open
  Sender* sender_ ABSL_GUARDED_BY(mutex_) = nullptr;    // while it is open
  bool is_reading_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<MessageBytes> message_ ABSL_GUARDED_BY(mutex_);
};

// The sender's call. Deletes itself when it is done.
class StateRelay::Sender final : public ReadReactor {
 public:
  Sender(std::shared_ptr<Transfer> transfer, MessageBytes* response)
      : transfer_(std::move(transfer)) {
    bool owns_buffer = false;
    (void)grpc::SerializationTraits<SendWorkerStateResponse>::Serialize(SendWorkerStateResponse(),
                                                                        response, &owns_buffer);
    StartSendInitialMetadata();  // tells the worker that the shard knows it
  }

  void Read() { StartRead(&read_); }
  void End(const absl::Status& status) { Finish(ToGrpc(status)); }

 private:
  void OnReadDone(bool ok) override {
    if (ok) {
      transfer_->Put(std::move(read_));
    } else {
      transfer_->CloseSender(this);
    }
  }
  // It may wait for the receiver, and not read.
  void OnCancel() override { transfer_->CloseSender(this); }
  void OnDone() override { delete this; }

  const std::shared_ptr<Transfer> transfer_;
  MessageBytes read_;
};

// The receiver's end.
class StateRelay::Source final : public ChunkSource {
 public:
  explicit Source(std::shared_ptr<Transfer> transfer) : transfer_(std::move(transfer)) {}
  ~Source() override { transfer_->CloseReceiver(); }
  absl::StatusOr<Next> TakeNext() override { return transfer_->Take(); }

 private:
  const std::shared_ptr<Transfer> transfer_;
};

absl::Status StateRelay::Transfer::OpenReceiver(std::function<void()> wake) {
  absl::MutexLock lock(&mutex_);
  if (receiver_ != End::kNotYet) return absl::AlreadyExistsError("the state has a receiver");
  receiver_ = End::kOpen;
  wake_ = std::move(wake);
  Advance();
  return absl::OkStatus();
}

absl::StatusOr<ChunkSource::Next> StateRelay::Transfer::Take() {
  absl::MutexLock lock(&mutex_);
  ChunkSource::Next next{.message = std::move(message_), .is_end = end_of_sender_ == End::kClosed};
  message_.reset();
  Advance();
  return next;
}

void StateRelay::Transfer::CloseReceiver() {
  absl::MutexLock lock(&mutex_);
  receiver_ = End::kClosed;
  wake_ = nullptr;
  message_.reset();
  Advance();
}

absl::Status StateRelay::Transfer::OpenSender(Sender* sender) {
  absl::MutexLock lock(&mutex_);
  if (end_of_sender_ != End::kNotYet) return absl::AlreadyExistsError("the state has a sender");
  end_of_sender_ = End::kOpen;
  sender_ = sender;
  Advance();
  return absl::OkStatus();
}

void StateRelay::Transfer::Put(MessageBytes message) {
  absl::MutexLock lock(&mutex_);
  is_reading_ = false;
  if (receiver_ != End::kClosed) message_ = std::move(message);
  if (receiver_ == End::kOpen) wake_();
  Advance();
}

void StateRelay::Transfer::CloseSender(Sender* sender) {
  absl::MutexLock lock(&mutex_);
  if (sender_ != sender) return;  // it was refused, or ended before
  is_reading_ = false;
  end_of_sender_ = End::kClosed;
  if (receiver_ == End::kOpen) wake_();
  std::exchange(sender_, nullptr)->End(absl::OkStatus());
}

void StateRelay::Transfer::Advance() {
  if (sender_ == nullptr || is_reading_) return;
  if (receiver_ == End::kClosed) {
    end_of_sender_ = End::kClosed;
    std::exchange(sender_, nullptr)->End(absl::CancelledError("the receiver is gone"));
  } else if (!message_.has_value()) {
    is_reading_ = true;
    sender_->Read();
  }
}

absl::StatusOr<std::shared_ptr<StateRelay::Transfer>> StateRelay::Find(int slot, uint64_t ticket) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(transfers_, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = transfers_.find({slot, ticket}); found != transfers_.end()) {
    if (std::shared_ptr<Transfer> transfer = found->second.lock(); transfer != nullptr) {
      return transfer;
    }
  }
  if (transfers_.size() >= limit_) {
    return absl::ResourceExhaustedError(absl::StrCat("the process passes on the state of ", limit_,
                                                     " workers, the most at a time"));
  }
  std::shared_ptr<Transfer> transfer = std::make_shared<Transfer>();
  transfers_[{slot, ticket}] = transfer;
  return transfer;
}

absl::StatusOr<std::unique_ptr<ChunkSource>> StateRelay::Receive(int slot, uint64_t ticket,
                                                                 std::function<void()> wake) {
  ASSIGN_OR_RETURN(std::shared_ptr<Transfer> transfer, Find(slot, ticket));
  RETURN_IF_ERROR(transfer->OpenReceiver(std::move(wake)));
  return std::make_unique<Source>(std::move(transfer));
}

ReadReactor* StateRelay::Send(int slot, uint64_t ticket, MessageBytes* response) {
  absl::StatusOr<std::shared_ptr<Transfer>> transfer = Find(slot, ticket);
  if (!transfer.ok()) return new Refused<ReadReactor>(transfer.status());
  Sender* const sender = new Sender(*transfer, response);
  if (const absl::Status opened = (*transfer)->OpenSender(sender); !opened.ok()) {
    sender->End(opened);
  }
  return sender;
}

}  // namespace evenshard
