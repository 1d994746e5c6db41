// The way of a push through this file:
//   1. OnReadDone has a GradientChunk message, as gRPC's slices.
//   2. HandleGradient decodes its header and passes the data on where it lies (Shard::Push).
//   3. The next read starts (ResumeRead): for a worker that is ahead of the others after a
//      while, under `deterministic` perhaps only in Release, and for a worker that does not
//      take its replies only in WriteNext.
//   4. Reply, from this or another worker's push, queues the answer. While the worker asks to
//      `hold`, it stays there.
//   5. WriteNext builds the ParameterChunk message, with the parameters as they are now,
//      and starts the write; OnWriteDone goes on to the next.
// Where worker and shard share memory, 2 only queues the push (QueueShared), which a thread of
// PushWorkers takes up (PushShared), and 4 writes the parameters to the worker's memory.

#include "server/exchange_stream.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/chunk_codec.h"
#include "common/encoding.h"
#include "common/status_conversion.h"
#include "server/chunk_message.h"
#include "spdlog/spdlog.h"

namespace ps {

std::shared_ptr<ExchangeStream> ExchangeStream::Start(
    Shard* shard, PushWorkers* push_workers, uint32_t worker, uint64_t incarnation,
    std::function<void(ExchangeStream*)> on_done) {
  std::shared_ptr<ExchangeStream> stream(
      new ExchangeStream(shard, push_workers, worker, incarnation, std::move(on_done)));
  stream->self_ = stream;
  absl::StatusOr<std::shared_ptr<WorkerBuffers>> opened =
      shard->membership().StreamOpened(worker, incarnation);
  stream->opened_ = opened.ok();
  if (opened.ok()) {
    stream->buffers_ = *std::move(opened);
    stream->StartRead(&stream->read_);
  } else {
    // A run that fails while a worker opens its streams costs it its rank: it shall hear why.
    const absl::Status failure = shard->failure();
    stream->End(failure.ok() ? opened.status() : failure);
  }
  return stream;
}

void ExchangeStream::OnReadDone(bool ok) {
  if (!ok) {  // the worker has half-closed, or the connection is gone
    End(absl::OkStatus());
    return;
  }
  if (absl::Status status = HandleGradient(); !status.ok()) {
    End(status);
    return;
  }
  bool replies_go = false;
  {
    absl::MutexLock lock(&mutex_);
    // Only now, so that the reply to this chunk goes in its order with those kept back.
    hold_ = read_holds_;
    if (!hold_ && !writing_ && !replies_.empty()) replies_go = writing_ = true;
    read_paused_ = true;
    ResumeRead();
  }
  if (replies_go) WriteNext();
}

void ExchangeStream::ResumeRead() {
  if (!read_paused_ || ending_ || held_bytes_ > held_bytes_limit_) return;
  if (replies_.size() > replies_limit_ || shared_pushes_ > replies_limit_ || alarm_set_) return;
  // Workers whose memory is shared have nothing under way that others could do without.
  if (const absl::Duration wait =
          buffers_ != nullptr ? absl::ZeroDuration() : shard_->PushWait(worker_);
      wait > absl::ZeroDuration()) {
    alarm_set_ = true;
    alarm_ = std::make_unique<grpc::Alarm>();  // the last one may be ringing just now
    alarm_->Set(absl::ToChronoTime(absl::Now() + wait), [self = shared_from_this()](bool) {
      absl::MutexLock lock(&self->mutex_);
      self->alarm_set_ = false;
      self->ResumeRead();
    });
    return;
  }
  read_paused_ = false;
  StartRead(&read_);
}

absl::Status ExchangeStream::HandleGradient() {
  auto message = std::make_shared<const ReceivedMessage>(&read_);
  absl::StatusOr<Decoded<GradientHeader>> decoded = DecodeGradientChunk(message->segments());
  if (!decoded.ok()) return decoded.status();
  const GradientHeader& header = decoded->header;
  if (header.worker != worker_ || header.incarnation != incarnation_) {
    return absl::InvalidArgumentError(absl::StrCat("worker ", header.worker,
                                                   " pushed on the stream of worker ", worker_,
                                                   "; each incarnation opens its own"));
  }
  read_holds_ = header.hold;
  {
    absl::MutexLock lock(&mutex_);
    hold_ |= header.hold;
  }
  if (buffers_ != nullptr) return QueueShared(*decoded);
  return PushReceived(std::move(message), *std::move(decoded));
}

absl::Status ExchangeStream::PushReceived(std::shared_ptr<const ReceivedMessage> message,
                                          Decoded<GradientHeader> decoded) {
  const size_t bytes = SegmentsSize(decoded.data);
  {
    absl::MutexLock lock(&mutex_);
    held_bytes_ += bytes;
  }
  // Whoever drops the gradient last, wherever, gives its bytes back to this stream.
  std::shared_ptr<const void> owner(message.get(), [message, stream = shared_from_this(), bytes](
                                                       const void*) { stream->Release(bytes); });
  return shard_->Push(Gradient{decoded.header, std::move(decoded.data), std::move(owner)},
                      shared_from_this());
}

absl::Status ExchangeStream::QueueShared(const Decoded<GradientHeader>& decoded) {
  const GradientHeader& header = decoded.header;
  if (const size_t bytes = SegmentsSize(decoded.data); bytes > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker_, " pushed ", bytes, " bytes of chunk ", header.chunk,
                     ", whose gradient is read in the worker's own memory"));
  }
  {
    absl::MutexLock lock(&mutex_);
    ++shared_pushes_;
  }
  push_workers_->Add(header.chunk,
                     [self = shared_from_this(), header] { self->PushShared(header); });
  return absl::OkStatus();
}

void ExchangeStream::PushShared(const GradientHeader& header) {
  {
    absl::MutexLock lock(&mutex_);
    --shared_pushes_;
    if (ending_) return;
    ResumeRead();
  }
  Gradient gradient{header, {}, buffers_};
  const int index = shard_->store().IndexOf(header.chunk);
  if (index >= 0 && !header.skip) {  // Push refuses a chunk that is not the shard's
    const Chunk& chunk = shard_->store().chunks()[index].info();
    const float* const first = buffers_->gradients.span().data() + chunk.model_offset;
    gradient.data = {{reinterpret_cast<const char*>(first), chunk.size * sizeof(float)}};
  }
  const absl::Status pushed = shard_->Push(std::move(gradient), shared_from_this());
  if (!pushed.ok()) End(pushed);
}

void ExchangeStream::Release(size_t bytes) {
  absl::MutexLock lock(&mutex_);
  held_bytes_ -= bytes;
  ResumeRead();
}

void ExchangeStream::Reply(uint32_t chunk, uint64_t iteration) {
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
  }
  uint64_t version = 0;
  if (buffers_ != nullptr) {
    StoredChunk& stored = shard_->store().chunks()[shard_->store().IndexOf(chunk)];
    absl::ReaderMutexLock lock(&stored.mutex);
    version = stored.version();
    absl::c_copy(stored.parameters(), buffers_->parameters.data() + stored.info().model_offset);
  }
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
    replies_.Push(chunk, {chunk, iteration, version});
    if (hold_ || std::exchange(writing_, true)) return;
  }
  WriteNext();
}

void ExchangeStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(ending_, true)) return;
    end_status_ = status;
    if (!status.ok()) replies_.clear();
    if (alarm_set_) alarm_->Cancel();
    if (std::exchange(writing_, true)) return;
  }
  WriteNext();
}

void ExchangeStream::WriteNext() {
  PendingReply next;
  absl::Status end_status;
  bool finish = false;
  {
    absl::MutexLock lock(&mutex_);
    if (replies_.empty() || (hold_ && !ending_)) {
      if (!ending_ || finished_) {
        writing_ = false;
        return;
      }
      finish = finished_ = true;  // writing_ stays set: nothing is written any more
      end_status = end_status_;
    } else {
      next = replies_.Pop();
      ResumeRead();
    }
  }
  if (finish) {
    Finish(ToGrpc(end_status));
    return;
  }
  StoredChunk& chunk = shard_->store().chunks()[shard_->store().IndexOf(next.chunk)];
  const Encoding encoding = shard_->config().proto().exchange().parameter_encoding();
  const uint64_t bytes = EncodedBytes(encoding, chunk.info().size);
  if (buffers_ != nullptr) {
    write_ = ChunkWrittenMessage(next.chunk, next.iteration, next.version);
  } else {
    write_ =
        ParameterChunkMessage(chunk, next.iteration, encoding,
                              shard_->RepliesMayBorrow() ? ChunkData::kBorrow : ChunkData::kCopy);
  }
  ++shard_->counters().pulls;
  shard_->counters().bytes_out += bytes;
  shard_->membership().CountReply(worker_, bytes);
  StartWrite(&write_);
}

void ExchangeStream::OnWriteDone(bool ok) {
  if (!ok) {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    replies_.clear();
  }
  WriteNext();
}

void ExchangeStream::OnCancel() { End(absl::CancelledError("the worker's connection ended")); }

void ExchangeStream::OnDone() {
  if (opened_ && shard_->membership().StreamClosed(worker_, incarnation_)) {
    if (shard_->failure().ok()) spdlog::warn("lost {}", shard_->membership().Describe(worker_));
    shard_->WorkerLost(worker_);
  }
  on_done_(this);
  self_.reset();
}

}  // namespace ps
