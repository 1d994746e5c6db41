#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_QUEUE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_QUEUE_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace evenshard {

// The chunks that wait to be pushed to one shard, first in, first out. The streams to the shard
// share one queue, so that all workers push the same chunks at about the same time even if one
// stream is faster than another. Small chunks wait for others to share a message with, until the
// queue is told that none comes. Not thread-safe: ExchangeRound guards it.
class PushQueue {
 public:
  // Chunks wait until they have `least_bytes` together.
  PushQueue(int streams, int64_t least_bytes) : least_bytes_(least_bytes), last_(streams) {}

  void Push(uint32_t chunk, int64_t bytes) {
    chunks_.push_back({chunk, bytes});
    bytes_ += bytes;
    is_flushed_ = false;
  }

  void Clear() {
    chunks_.clear();
    bytes_ = 0;
    std::fill(last_.begin(), last_.end(), std::nullopt);
  }

  // Chunks in the queue no longer wait for later ones to share a message with.
  void Flush() { is_flushed_ = true; }

  // Sorts the chunks that wait by their ids, the order in which the next forward pass needs them.
  void Prioritise() {
    std::sort(chunks_.begin(), chunks_.end(),
              [](const Waiting& a, const Waiting& b) { return a.chunk < b.chunk; });
  }

  // Adds the last chunk of a stream: only that stream takes it, after all other chunks.
  void PushLast(int stream, uint32_t chunk) { last_[stream] = chunk; }

  // Removes and returns the chunks of the next message for the stream to send, if any: as many as
  // there are, but at most `most`, and no further ones after `most_bytes` unless the rest is so
  // little that it would wait.
  std::vector<uint32_t> Pop(int stream, size_t most, int64_t most_bytes) {
    std::vector<uint32_t> popped;
    if (!is_flushed_ && bytes_ < least_bytes_) return popped;
    int64_t bytes = 0;
    while (!chunks_.empty() && popped.size() < most &&
           (bytes < most_bytes || bytes_ - bytes < least_bytes_)) {
      popped.push_back(chunks_.front().chunk);
      bytes += chunks_.front().bytes;
      chunks_.pop_front();
    }
    bytes_ -= bytes;
    if (popped.empty() && last_[stream].has_value()) {
      popped.push_back(*last_[stream]);
      last_[stream].reset();
    }
    return popped;
  }

 private:
  struct Waiting {
    uint32_t chunk = 0;
    int64_t bytes = 0;
  };

  int64_t least_bytes_;
  std::deque<Waiting> chunks_;
  int64_t bytes_ = 0;  // of chunks_
  bool is_flushed_ = false;
  std::vector<std::optional<uint32_t>> last_;  // by stream
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_QUEUE_H_
