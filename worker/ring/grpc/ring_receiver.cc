#include "worker/ring/grpc/ring_receiver.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/wire/chunk_codec.h"

namespace evenshard {

std::shared_ptr<RingReceiver> RingReceiver::Create(const Options& options) {
  std::shared_ptr<RingReceiver> receiver(new RingReceiver(options));
  receiver->self_ = receiver;
  receiver->StartSendInitialMetadata();  // tells the predecessor that the stream is open
  receiver->StartRead(&receiver->read_);
  return receiver;
}

void RingReceiver::OnReadDone(bool ok) {
  if (!ok) {  // the predecessor has sent everything, or is lost, which OnDone will know
    absl::MutexLock lock(&mutex_);
    is_reading_ = false;
    if (!std::exchange(is_ended_, true)) Finish(grpc::Status::OK);
    return;
  }
  if (!TakeMessage().ok()) {
    options_.on_failure();
    return;
  }
  absl::MutexLock lock(&mutex_);
  is_reading_ = false;
  ResumeRead();
}

void RingReceiver::ResumeRead() {
  if (is_reading_ || is_ended_ || held_bytes_ > options_.held_bytes) return;
  is_reading_ = true;
  StartRead(&read_);
}

absl::Status RingReceiver::TakeMessage() {
  auto message = std::make_shared<const ReceivedMessage>(&read_);
  const auto refused = [this](const absl::Status& status) {
    options_.round->Fail(status);
    return status;
  };
  if (options_.way == RingWay::kGather) {
    const auto chunks = DecodeParameterChunks(message->segments());
    if (!chunks.ok()) return refused(chunks.status());
    for (const Decoded<ParameterHeader>& chunk : *chunks) {
      RETURN_IF_ERROR(options_.round->TakeGathered(chunk));
    }
    return absl::OkStatus();
  }
  const auto chunks = DecodeGradientChunks(message->segments());
  if (!chunks.ok()) return refused(chunks.status());
  size_t bytes = 0;
  for (const Decoded<GradientHeader>& chunk : *chunks) bytes += SegmentsSize(chunk.data);
  const std::shared_ptr<const void> owner = Hold(std::move(message), bytes);
  for (const Decoded<GradientHeader>& chunk : *chunks) {
    RETURN_IF_ERROR(options_.round->TakeReduced(chunk, owner));
  }
  return absl::OkStatus();
}

std::shared_ptr<const void> RingReceiver::Hold(std::shared_ptr<const ReceivedMessage> message,
                                               size_t bytes) {
  {
    absl::MutexLock lock(&mutex_);
    held_bytes_ += bytes;
  }
  const void* const address = message.get();
  return {address, [message = std::move(message), receiver = shared_from_this(),
                    bytes](const void*) { receiver->Release(bytes); }};
}

void RingReceiver::Release(size_t bytes) {
  absl::MutexLock lock(&mutex_);
  held_bytes_ -= bytes;
  ResumeRead();
}

void RingReceiver::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (std::exchange(is_ended_, true)) return;
  was_ended_here_ = true;
  Finish(ToGrpc(status));
}

void RingReceiver::OnDone() {
  bool was_ended_here = false;
  {
    absl::MutexLock lock(&mutex_);
    was_ended_here = was_ended_here_;
  }
  options_.on_done(this, was_ended_here || !was_cancelled_);
  self_.reset();
}

}  // namespace evenshard
