#include "worker/shard_stream.h"

#include "absl/strings/str_cat.h"
#include "common/exchange_metadata.h"
#include "common/received_message.h"
#include "common/status_conversion.h"
#include "grpcpp/generic/generic_stub.h"

namespace ps {

namespace {

constexpr absl::Duration kCloseTimeout = absl::Seconds(2);

}  // namespace

ShardStream::ShardStream(const std::shared_ptr<grpc::Channel>& channel, const Options& options,
                         Handler* handler)
    : options_(options), handler_(handler) {
  // Not wait_for_ready: a shard that has gone since Join must be an error, not a wait. While the
  // connection is being made the call waits for it all the same.
  context_.AddMetadata(kWorkerMetadata, absl::StrCat(options.worker));
  context_.AddMetadata(kIncarnationMetadata, absl::StrCat(options.incarnation));
  // Generic, because the messages are encoded and decoded by chunk_codec.h.
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(&context_, "/ps.ParameterServer/Exchange", {}, this);
  running_.Add();
  StartRead(&read_);
  AddHold();  // writes start from outside of reactions: Wake
  StartCall();
}

ShardStream::~ShardStream() {
  {
    absl::MutexLock lock(&mutex_);
    if (!stopped_) context_.TryCancel();
    StopWriting();
  }
  if (running_.AwaitZeroFor(kCloseTimeout)) return;
  context_.TryCancel();  // the shard does not end a closed stream
  running_.AwaitZero();
}

void ShardStream::Wake() {
  absl::MutexLock lock(&mutex_);
  if (!writing_) WriteNext();
}

void ShardStream::WriteNext() {
  const absl::optional<uint32_t> chunk =
      stopped_ ? absl::nullopt : options_.queue->Pop(options_.index);
  writing_ = chunk.has_value();
  if (!writing_) return;
  written_ = *chunk;
  write_ = handler_->GradientMessage(written_);
  StartWrite(&write_);
}

void ShardStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  write_.Clear();
  if (ok) {
    handler_->GradientSent(written_);
  } else {
    StopWriting();
  }
  WriteNext();
}

void ShardStream::OnReadDone(bool ok) {
  absl::Status taken;
  if (ok) {
    const ReceivedMessage message(&read_);
    taken = handler_->TakeParameters(options_.shard, message.segments());
    if (taken.ok()) {
      StartRead(&read_);
      return;
    }
    context_.TryCancel();
  }
  absl::MutexLock lock(&mutex_);
  rejected_ = taken;
  StopWriting();
}

void ShardStream::Close() {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return;
  StartWritesDone();
  StopWriting();
}

void ShardStream::StopWriting() {
  if (stopped_) return;
  stopped_ = true;
  RemoveHold();
}

void ShardStream::OnDone(const grpc::Status& status) {
  absl::Status outcome = FromGrpc(status);
  {
    absl::MutexLock lock(&mutex_);
    if (!rejected_.ok()) outcome = rejected_;
  }
  handler_->StreamEnded(options_.shard, outcome);
  running_.Remove();
}

}  // namespace ps
