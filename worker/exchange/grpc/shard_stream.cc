#include "worker/exchange/grpc/shard_stream.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/net/status_conversion.h"
#include "common/wire/exchange_metadata.h"
#include "common/wire/message_slices.h"
#include "grpcpp/generic/generic_stub.h"

namespace evenshard {

namespace {

constexpr absl::Duration kCloseTimeout = absl::Seconds(2);
// How often a wait checks whether a stop is requested.
constexpr std::chrono::milliseconds kStopPeriod(50);

}  // namespace

ShardStream::ShardStream(const std::shared_ptr<grpc::Channel>& channel, const Options& options,
                         Handler* handler)
    : options_(options), handler_(handler) {
  // The call does not set wait_for_ready, so that it fails if the shard is gone. It still waits
  // while the connection is being made.
  context_.AddMetadata(kWorkerMetadata, absl::StrCat(options.worker));
  context_.AddMetadata(kIncarnationMetadata, absl::StrCat(options.incarnation));
  context_.AddMetadata(kJoinFollowsMetadata, "1");
  if (options.names_slot) context_.AddMetadata(kSlotMetadata, absl::StrCat(options.slot));
  // The stub is generic because chunk_codec.h encodes and decodes the messages.
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(&context_, "/evenshard.v1.ParameterServer/Exchange", {}, this);
  running_.Add();
  StartRead(&read_message_);
  AddHold();  // because Wake starts writes outside of gRPC's callbacks
  StartCall();
}

ShardStream::~ShardStream() {
  {
    absl::MutexLock lock(&mutex_);
    if (!writing_stopped_) context_.TryCancel();
    StopWriting();
  }
  if (running_.AwaitZeroFor(kCloseTimeout)) return;
  context_.TryCancel();  // the shard has not ended the closed stream in time
  running_.AwaitZero();
}

absl::Status ShardStream::AwaitOpen(const std::stop_token& stop) {
  std::future<absl::Status> open = open_.get_future();
  while (open.wait_for(kStopPeriod) != std::future_status::ready) {
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
  }
  return open.get();
}

void ShardStream::SetOpen(const absl::Status& status) {
  std::call_once(open_once_, [&] { open_.set_value(status); });
}

void ShardStream::OnReadInitialMetadataDone(bool ok) {
  if (ok) SetOpen(absl::OkStatus());
}

void ShardStream::Wake() {
  absl::MutexLock lock(&mutex_);
  if (!is_writing_) WriteNext();
}

void ShardStream::WriteNext() {
  is_writing_ = false;
  if (writing_stopped_) return;
  writing_ = handler_->NextGradients(options_.slot, options_.index, &write_message_);
  is_writing_ = !writing_.empty();
  if (is_writing_) StartWrite(&write_message_);
}

void ShardStream::OnWriteDone(bool ok) {
  std::vector<GradientHeader> sent;
  {
    absl::MutexLock lock(&mutex_);
    write_message_.Clear();
    sent.swap(writing_);
    if (!ok) StopWriting();
  }
  // What has been sent may let other chunks leave, by this stream too.
  if (ok) handler_->GradientsSent(sent);
  absl::MutexLock lock(&mutex_);
  WriteNext();
}

void ShardStream::OnReadDone(bool ok) {
  absl::Status taken;
  if (ok) {
    const ReceivedMessage message(&read_message_);
    taken = handler_->TakeParameters(options_.slot, message.segments());
    if (taken.ok()) {
      StartRead(&read_message_);
      return;
    }
    context_.TryCancel();
  }
  absl::MutexLock lock(&mutex_);
  parameters_error_ = taken;
  StopWriting();
}

void ShardStream::Close() {
  absl::MutexLock lock(&mutex_);
  if (writing_stopped_) return;
  StartWritesDone();
  StopWriting();
}

void ShardStream::StopWriting() {
  if (writing_stopped_) return;
  writing_stopped_ = true;
  RemoveHold();
}

void ShardStream::OnDone(const grpc::Status& status) {
  absl::Status outcome = FromGrpc(status);
  {
    absl::MutexLock lock(&mutex_);
    if (!parameters_error_.ok()) outcome = parameters_error_;
  }
  SetOpen(outcome.ok() ? absl::UnavailableError("it ended the stream at once") : outcome);
  handler_->Ended(options_.slot, options_.attempt, outcome);
  running_.Remove();
}

}  // namespace evenshard
