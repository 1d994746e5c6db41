#include "tests/simulation/push_stream.h"

#include <utility>

#include "common/wire/encoding.h"
#include "server/rpc/held_bytes.h"

namespace evenshard {

PushStream::PushStream(Options options)
    : options_(std::move(options)),
      gate_({.held_bytes = HeldBytes(options_.context->config),
             .waiting = options_.shard->store().chunks().size()}),
      replies_(ChunkOrderOf(options_.context->config.proto().exchange())) {}

PushStream::~PushStream() { CloseSession(); }

void PushStream::CloseSession() {
  if (!std::exchange(closed_, true)) options_.shard->CloseStream(options_.session.get());
}

void PushStream::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return;
  gate_.Close();
  arrived_.clear();
  replies_.clear();
  options_.connection->Close(1, status);
  if (!writing_) CloseSession();
}

void PushStream::Push(const GradientHeader& header, std::shared_ptr<const std::string> data) {
  if (ended_) return;
  arrived_.push_back({header, std::move(data)});
  Read();
}

void PushStream::Read() {
  while (!ended_ && reads_ && !arrived_.empty()) {
    Arrived next = std::move(arrived_.front());
    arrived_.pop_front();
    reads_ = false;
    rank_ = next.header.worker;
    Take(next.header, std::move(next.data));
    gate_.ReadDone();
    ResumeRead();
  }
}

void PushStream::ResumeRead() {
  if (ended_) return;
  gate_.SetReplies(replies_.size());
  const absl::Duration pace = options_.shard->PushWait(rank_);
  switch (gate_.Next(pace)) {
    case ReadGate::Action::kWait:
      return;
    case ReadGate::Action::kRead:
      reads_ = true;
      return;
    case ReadGate::Action::kSetTimer:
      options_.context->world.Run(options_.node, pace, [weak = weak_from_this()] {
        const auto self = weak.lock();
        if (self == nullptr) return;
        self->gate_.TimerRang();
        self->ResumeRead();
        self->Read();
      });
      return;
  }
}

std::shared_ptr<const void> PushStream::Hold(std::shared_ptr<const std::string> data) {
  const size_t bytes = data->size();
  gate_.Hold(bytes);
  const void* const address = data.get();
  return {address, [data = std::move(data), weak = weak_from_this(), bytes](const void*) {
            const auto self = weak.lock();
            if (self == nullptr) return;
            self->gate_.Release(bytes);
            // The shard may be at work.
            self->options_.context->world.Run(self->options_.node, absl::ZeroDuration(), [weak] {
              const auto later = weak.lock();
              if (later == nullptr) return;
              later->ResumeRead();
              later->Read();
            });
          }};
}

void PushStream::Take(GradientHeader header, std::shared_ptr<const std::string> data) {
  const auto self = shared_from_this();
  const Plant plant = options_.context->plant;
  if (plant == Plant::kIgnoresViews) header.view = options_.shard->view();
  if (plant == Plant::kCountsRepeats) {
    StoredChunk& chunk = options_.shard->chunk(header.chunk);
    absl::ReaderMutexLock lock(&chunk.mutex);
    const ChunkClock& clock = chunk.clock();
    uint64_t& iteration = header.iteration;
    iteration =
        std::max(iteration, clock.next_iteration.empty() ? clock.iteration
                                                         : clock.next_iteration[header.worker]);
  }
  hold_ |= header.hold;
  owed_[header.chunk] = header.base_version;
  Segments segments;
  if (!header.skip) segments.emplace_back(data->data(), data->size());
  const absl::Status pushed = options_.shard->Push(
      *options_.session, Gradient{header, std::move(segments), Hold(std::move(data))}, self);
  if (!pushed.ok()) {
    End(pushed);
    return;
  }
  hold_ = header.hold;
  WriteLater();
}

void PushStream::Reply(uint32_t chunk, uint64_t iteration, bool dropped) {
  if (ended_ || (dropped && options_.context->plant == Plant::kIgnoresLate)) return;
  PendingReply reply{.chunk = chunk, .iteration = iteration, .dropped = dropped};
  const auto owed = owed_.extract(chunk);
  if (!owed.empty() && owed.mapped() > 0 && VersionsTell(*options_.shard)) {
    reply.base_version = owed.mapped();
  }
  replies_.Push(chunk, reply);
  WriteLater();
}

void PushStream::WriteLater() {
  if (ended_ || HoldsReplies() || replies_.empty() || std::exchange(writing_, true)) return;
  World& world = options_.context->world;
  // The message is made when the one before has left.
  const absl::Duration delay = world.dice().Once(2)
                                   ? absl::ZeroDuration()
                                   : world.typical_delay * world.dice().Between(0, 1);
  world.Run(options_.node, delay, [weak = weak_from_this()] {
    if (const auto self = weak.lock(); self != nullptr) self->WriteNext();
  });
}

void PushStream::WriteNext() {
  writing_ = false;
  if (ended_) return CloseSession();
  if (HoldsReplies() || replies_.empty()) return;
  const PendingReply next = replies_.Pop();
  StoredChunk& chunk = options_.shard->chunk(next.chunk);
  ParameterHeader header;
  std::string data;
  bool is_deferred;
  {
    absl::ReaderMutexLock lock(&chunk.mutex);
    is_deferred = !options_.shard->MayReply(next.chunk);
    header = HeaderOf(*options_.shard, chunk, next);
    if (header.is_difference) {
      data.assign(chunk.EncodedUpdate().begin(), chunk.EncodedUpdate().end());
    } else if (header.has_data()) {
      const auto encoding = static_cast<Encoding>(header.encoding);
      data.resize(EncodedBytes(encoding, chunk.info().size));
      Encode(encoding, chunk.parameters(), data.data());
    }
    if (!is_deferred && !next.dropped) chunk.sent().Note(rank_);
  }
  if (is_deferred) {
    if (next.base_version.has_value()) owed_[next.chunk] = *next.base_version;
    options_.shard->Defer(next.chunk, {shared_from_this(), next.iteration, next.dropped});
    return WriteLater();
  }
  options_.shard->CountReply(options_.session.get(), data.size());
  options_.connection->Send(1, [deliver = deliver_, header, data = std::move(data),
                                primary = options_.primary] { deliver(header, data, primary); });
  ResumeRead();
  Read();
  WriteLater();
}

}  // namespace evenshard
