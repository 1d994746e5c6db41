#include "worker/ring/grpc/ring_sender.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/wire/exchange_metadata.h"
#include "grpcpp/generic/generic_stub.h"

namespace evenshard {
namespace {

constexpr std::chrono::milliseconds kCheckPeriod(50);

}  // namespace

RingSender::RingSender(const std::shared_ptr<grpc::Channel>& channel, const Options& options,
                       Handler* handler)
    : options_(options), handler_(handler) {
  context_.AddMetadata(kWorkerMetadata, absl::StrCat(options.worker));
  context_.AddMetadata(kIncarnationMetadata, absl::StrCat(options.incarnation));
  // The stub is generic because chunk_codec.h encodes the messages.
  grpc::GenericStub stub(channel);
  stub.PrepareBidiStreamingCall(
      &context_,
      options.way == RingWay::kReduce ? "/evenshard.v1.Ring/Reduce" : "/evenshard.v1.Ring/Gather",
      {}, this);
  running_.Add();
  StartRead(&read_message_);  // ends with the RPC, since nothing is sent back
  AddHold();                  // because Wake starts writes outside of gRPC's callbacks
  StartCall();
}

RingSender::~RingSender() {
  context_.TryCancel();
  {
    absl::MutexLock lock(&mutex_);
    StopWriting();
  }
  running_.AwaitZero();
}

absl::Status RingSender::AwaitOpen(const std::function<absl::Status()>& check) {
  std::future<absl::Status> open = open_.get_future();
  while (open.wait_for(kCheckPeriod) != std::future_status::ready) {
    RETURN_IF_ERROR(check());
  }
  return open.get();
}

void RingSender::SetOpen(const absl::Status& status) {
  std::call_once(open_once_, [&] { open_.set_value(status); });
}

void RingSender::OnReadInitialMetadataDone(bool ok) {
  if (ok) SetOpen(absl::OkStatus());
}

void RingSender::Wake() {
  absl::MutexLock lock(&mutex_);
  if (!is_writing_) WriteNext();
}

void RingSender::WriteNext() {
  is_writing_ =
      !writing_stopped_ && handler_->NextMessage(options_.way, options_.stream, &write_message_);
  if (is_writing_) StartWrite(&write_message_);
}

void RingSender::OnWriteDone(bool ok) {
  {
    absl::MutexLock lock(&mutex_);
    write_message_.Clear();
    if (!ok) StopWriting();
    WriteNext();
  }
  handler_->MessageLeft();
}

void RingSender::OnReadDone(bool ok) {
  if (ok) context_.TryCancel();  // a successor sends nothing
  absl::MutexLock lock(&mutex_);
  StopWriting();
}

void RingSender::Close() {
  absl::MutexLock lock(&mutex_);
  if (writing_stopped_) return;
  StartWritesDone();
  StopWriting();
}

void RingSender::StopWriting() {
  if (writing_stopped_) return;
  writing_stopped_ = true;
  RemoveHold();
}

void RingSender::OnDone(const grpc::Status& status) {
  const absl::Status outcome = FromGrpc(status);
  SetOpen(outcome);  // OK: the successor took the stream, and has finished already
  handler_->SenderEnded(outcome);
  running_.Remove();
}

}  // namespace evenshard
