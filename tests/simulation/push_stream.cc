#include "tests/simulation/push_stream.h"

#include <utility>

#include "common/wire/encoding.h"

namespace evenshard {

PushStream::PushStream(Options options)
    : options_(std::move(options)),
      replies_(ChunkOrderOf(options_.context->config.proto().exchange())) {}

PushStream::~PushStream() { CloseSession(); }

void PushStream::CloseSession() {
  if (!std::exchange(ended_, true)) options_.shard->CloseStream(options_.session.get());
}

void PushStream::End(const absl::Status& status) {
  if (ended_) return;
  CloseSession();
  replies_.clear();
  options_.connection->Close(1, status);
}

void PushStream::Push(GradientHeader header, std::shared_ptr<const std::string> data) {
  if (ended_) return;
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
  Segments segments;
  if (!header.skip) segments.emplace_back(data->data(), data->size());
  const absl::Status pushed = options_.shard->Push(
      *options_.session, Gradient{header, std::move(segments), std::move(data)}, self);
  if (!pushed.ok()) {
    End(pushed);
    return;
  }
  hold_ = header.hold;
  WriteLater();
}

void PushStream::Reply(uint32_t chunk, uint64_t iteration) {
  if (ended_) return;
  replies_.Push(chunk, {chunk, iteration});
  WriteLater();
}

void PushStream::WriteLater() {
  if (ended_ || hold_ || replies_.empty() || std::exchange(writing_, true)) return;
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
  if (ended_ || hold_ || replies_.empty()) return;
  const Pending next = replies_.Pop();
  const Encoding encoding = options_.context->config.proto().exchange().parameter_encoding();
  StoredChunk& chunk = options_.shard->chunk(next.chunk);
  ParameterHeader header{.iteration = next.iteration,
                         .chunk = next.chunk,
                         .encoding = encoding,
                         .view = options_.shard->view()};
  std::string data;
  {
    absl::ReaderMutexLock lock(&chunk.mutex);
    header.version = chunk.version();
    data.resize(EncodedBytes(encoding, chunk.info().size));
    Encode(encoding, chunk.parameters(), data.data());
  }
  options_.shard->CountReply(options_.session.get(), data.size());
  options_.connection->Send(1, [deliver = deliver_, header, data = std::move(data),
                                primary = options_.primary] { deliver(header, data, primary); });
  WriteLater();
}

}  // namespace evenshard
