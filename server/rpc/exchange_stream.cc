// The path of a push through this file:
//   1. OnReadDone has a GradientChunks message in slices of gRPC's.
//   2. HandleGradients decodes the headers and passes the data to Shard::Push without copying it.
//   3. ResumeRead starts the next read. It does so later if the worker is ahead of others (when the
//      alarm rings), if too many gradients are held for deterministic order (in Release), or if the
//      worker does not read its replies (in WriteNext).
//   4. Reply, called by this or another worker's push, queues the reply. It stays in the queue
//      while the worker asks to `hold`, unless there are so many that they stop step 3.
//   5. WriteNext builds the ParameterChunks message with the current parameters and starts the
//      write. OnWriteDone continues with the next replies.
// If the worker and the shard share memory, step 2 only queues the push (QueueShared), a thread of
// ChunkThreads takes it (PushShared), and step 4 writes the parameters to the worker's memory.

#include "server/rpc/exchange_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/wire/chunk_codec.h"
#include "server/rpc/held_bytes.h"

namespace evenshard {
namespace {

// Returns the bytes of a chunk's parameters, or 0 if the shard does not own it.
int64_t ParameterBytes(Shard& shard, uint32_t chunk) {
  const int index = shard.store().IndexOf(chunk);
  if (index < 0) return 0;
  return shard.store().chunks()[index].info().size * static_cast<int64_t>(sizeof(float));
}

}  // namespace

ExchangeStream::ExchangeStream(const Options& options)
    : options_(options),
      shard_(options.shard.get()),
      gate_(
          {.held_bytes = HeldBytes(shard_->config()), .waiting = shard_->store().chunks().size()}),
      replies_(ChunkOrderOf(shard_->config().proto().exchange())) {}

std::shared_ptr<ExchangeStream> ExchangeStream::Create(const Options& options) {
  std::shared_ptr<ExchangeStream> stream(new ExchangeStream(options));
  stream->self_ = stream;
  stream->StartSendInitialMetadata();  // tells the worker that the shard has the stream
  return stream;
}

void ExchangeStream::Open() {
  {
    absl::MutexLock lock(&mutex_);
    if (open_ || ending_) return;
    absl::StatusOr<std::shared_ptr<WorkerSession>> session =
        shard_->OpenStream(options_.worker, options_.incarnation);
    if (session.ok()) {
      open_ = true;
      session_ = *std::move(session);
      StartRead(&read_);
      return;
    }
    const absl::Status refused = session.status();
    const bool is_not_joined = absl::IsFailedPrecondition(refused) || absl::IsUnavailable(refused);
    if (options_.join_follows && is_not_joined && shard_->failure().ok()) return;
    if (!BeginEnd(refused)) return;
  }
  WriteNext();
}

void ExchangeStream::EndWaiting(absl::Time since) {
  {
    absl::MutexLock lock(&mutex_);
    if (open_ || options_.opened >= since) return;
    const absl::Status status = absl::FailedPreconditionError(
        absl::StrCat("worker ", options_.worker, " opened this stream and has not joined since"));
    if (!BeginEnd(status)) return;
  }
  WriteNext();
}

void ExchangeStream::OnReadDone(bool ok) {
  if (!ok) {  // the worker has half-closed the stream, or the connection is broken
    End(HalfClosed());
    return;
  }
  if (absl::Status status = HandleGradients(); !status.ok()) {
    End(status);
    return;
  }
  bool replies_go = false;
  {
    absl::MutexLock lock(&mutex_);
    // Set after the pushes, so that replies to them are sent in order with those that were held.
    hold_ = read_holds_;
    if (!hold_ && !writing_ && !replies_.empty()) replies_go = writing_ = true;
    gate_.ReadDone();
    ResumeRead();
  }
  if (replies_go) WriteNext();
}

void ExchangeStream::ResumeRead() {
  gate_.SetReplies(replies_.size());
  // Pacing shares a link among workers, and shared memory needs no link.
  const absl::Duration pace =
      SharesMemory() ? absl::ZeroDuration() : shard_->PushWait(options_.worker);
  switch (gate_.Next(pace)) {
    case ReadGate::Action::kWait:
      return;
    case ReadGate::Action::kRead:
      StartRead(&read_);
      return;
    case ReadGate::Action::kSetTimer:
      break;
  }
  alarm_ = std::make_unique<grpc::Alarm>();  // the last one's callback may still be running
  // An alarm keeps its callback after it has rung, so the callback must not keep the stream.
  alarm_->Set(absl::ToChronoTime(absl::Now() + pace), [weak = weak_from_this()](bool) {
    const std::shared_ptr<ExchangeStream> self = weak.lock();
    if (self == nullptr) return;
    absl::MutexLock lock(&self->mutex_);
    self->gate_.TimerRang();
    self->ResumeRead();
  });
}

absl::Status ExchangeStream::HalfClosed() {
  absl::MutexLock lock(&mutex_);
  if (owed_.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", options_.worker, " half-closed the stream before ", owed_.size(),
                   " chunks were answered; allowed: after the last reply"));
}

absl::Status ExchangeStream::HandleGradients() {
  auto message = std::make_shared<const ReceivedMessage>(&read_);
  ASSIGN_OR_RETURN(std::vector<Decoded<GradientHeader>> chunks,
                   DecodeGradientChunks(message->segments()));
  read_holds_ = chunks.back().header.hold;
  {
    absl::MutexLock lock(&mutex_);
    hold_ |= read_holds_ || chunks.size() > 1;  // replies to one message go in one
    for (const auto& [header, data] : chunks) owed_[header.chunk] = header.base_version;
  }
  if (SharesMemory()) return QueueShared(chunks);
  size_t bytes = 0;
  for (const Decoded<GradientHeader>& chunk : chunks) bytes += SegmentsSize(chunk.data);
  const std::shared_ptr<const void> owner = Hold(std::move(message), bytes);
  for (Decoded<GradientHeader>& chunk : chunks) {
    RETURN_IF_ERROR(
        shard_->Push(*session_, {chunk.header, std::move(chunk.data), owner}, shared_from_this()));
  }
  return absl::OkStatus();
}

std::shared_ptr<const void> ExchangeStream::Hold(std::shared_ptr<const ReceivedMessage> message,
                                                 size_t bytes) {
  {
    absl::MutexLock lock(&mutex_);
    gate_.Hold(bytes);
  }
  const void* const address = message.get();
  return {address, [message = std::move(message), stream = shared_from_this(), bytes](const void*) {
            stream->Release(bytes);
          }};
}

absl::Status ExchangeStream::QueueShared(const std::vector<Decoded<GradientHeader>>& chunks) {
  std::vector<GradientHeader> together;
  int64_t bytes = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const GradientHeader& header = chunks[i].header;
    if (const size_t sent = SegmentsSize(chunks[i].data); sent > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", options_.worker, " pushed ", sent, " bytes of chunk ",
                       header.chunk, ", whose gradient is read in the worker's own memory"));
    }
    bytes += ParameterBytes(*shard_, header.chunk);
    together.push_back(header);
    if (bytes < kMessageBytes && i + 1 < chunks.size()) continue;
    {
      absl::MutexLock lock(&mutex_);
      gate_.QueuePushes(together.size());
    }
    const uint32_t first = together[0].chunk;
    options_.push_threads->Add(first,
                               [self = shared_from_this(), headers = std::exchange(together, {})] {
                                 self->PushShared(headers);
                               });
    bytes = 0;
  }
  return absl::OkStatus();
}

void ExchangeStream::PushShared(const std::vector<GradientHeader>& headers) {
  {
    absl::MutexLock lock(&mutex_);
    gate_.TakePushes(headers.size());
    if (ending_) return;
    ResumeRead();
  }
  for (const GradientHeader& header : headers) {
    const absl::Status pushed = shard_->PushShared(*session_, header, shared_from_this());
    if (!pushed.ok()) return End(pushed);
  }
}

void ExchangeStream::Release(size_t bytes) {
  absl::MutexLock lock(&mutex_);
  gate_.Release(bytes);
  ResumeRead();
}

void ExchangeStream::Reply(uint32_t chunk, uint64_t iteration, bool dropped) {
  PendingReply reply{.chunk = chunk, .iteration = iteration, .dropped = dropped};
  {
    absl::MutexLock lock(&mutex_);
    if (ending_) return;
    if (const auto owed = owed_.find(chunk); owed != owed_.end()) {
      // A worker that has nothing says 0 as well.
      if (VersionsTell(*shard_) && owed->second > 0) reply.base_version = owed->second;
      owed_.erase(owed);
    }
    if (SharesMemory()) ++shared_writes_;
  }
  if (SharesMemory()) {
    reply.written_version = session_->buffers()->Write(shard_->config(), session_->rank(),
                                                       shard_->chunk(chunk), reply.base_version);
  }
  {
    absl::MutexLock lock(&mutex_);
    if (SharesMemory()) --shared_writes_;
    if (!ending_) replies_.Push(chunk, reply);
    if (HoldsReplies() || std::exchange(writing_, true)) return;
  }
  WriteNext();
}

void ExchangeStream::End(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (!BeginEnd(status)) return;
  }
  WriteNext();
}

bool ExchangeStream::BeginEnd(const absl::Status& status) {
  if (std::exchange(ending_, true)) return false;
  end_status_ = status;
  if (!status.ok()) replies_.clear();
  gate_.Close();
  if (gate_.timer_set()) alarm_->Cancel();
  return !std::exchange(writing_, true);
}

void ExchangeStream::WriteNext() {
  size_t left = 0;  // replies in the message
  while (left == 0) {
    std::vector<PendingReply> next, deferred;
    absl::Status end_status;
    bool finish = false;
    {
      absl::MutexLock lock(&mutex_);
      if (replies_.empty() || HoldsReplies()) {
        if (!ending_ || finished_ || shared_writes_ > 0) {
          writing_ = false;
          return;
        }
        finish = finished_ = true;  // writing_ stays set, so that nothing is written after this
        end_status = end_status_;
      } else {
        int64_t bytes = 0;
        while (!replies_.empty() && next.size() < kMostChunks && bytes < kMessageBytes) {
          next.push_back(replies_.Pop());
          bytes += DataBytes(shard_, next.back());
        }
        ResumeRead();
      }
    }
    if (finish) {
      Finish(ToGrpc(end_status));
      return;
    }
    write_ = ReplyMessage(shard_, session_.get(), next, deferred);
    left = next.size() - deferred.size();
    // They come by Reply again, maybe in this call.
    for (const PendingReply& reply : deferred) {
      if (reply.base_version.has_value()) {
        absl::MutexLock lock(&mutex_);
        owed_[reply.chunk] = *reply.base_version;
      }
      shard_->Defer(reply.chunk, {shared_from_this(), reply.iteration, reply.dropped});
    }
  }
  StartWrite(&write_);
}

void ExchangeStream::OnWriteDone(bool ok) {
  if (!ok) {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    gate_.Close();
    replies_.clear();
  }
  WriteNext();
}

void ExchangeStream::OnCancel() { End(absl::CancelledError("the worker's connection ended")); }

void ExchangeStream::OnDone() {
  if (session_ != nullptr) shard_->CloseStream(session_.get());
  options_.on_done(this);
  self_.reset();
}

}  // namespace evenshard
