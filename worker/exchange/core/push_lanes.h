#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_LANES_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_LANES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/placement/planned_config.h"
#include "worker/exchange/core/push_queue.h"

namespace evenshard {

// Where chunks wait for the streams to the slots, in the order of the schedule: a PushQueue for
// each slot. Thread-safe.
class PushLanes {
 public:
  explicit PushLanes(const PlannedConfig* config);  // must outlive the lanes

  // Under SEQUENTIAL the last chunk of each stream, whose push lets the shard answer all of the
  // stream's chunks, and the others. Under other schedules all are others.
  const std::vector<uint32_t>& last_chunks() const { return last_chunks_; }
  const std::vector<uint32_t>& other_chunks() const { return other_chunks_; }
  // Whether the shard is to keep the answer to the chunk until a stream's last one.
  bool IsHeld(uint32_t chunk) const { return is_sequential_ && last_stream_of_chunk_[chunk] < 0; }

  void Queue(uint32_t chunk);
  void Clear(int slot) { queues_[slot]->Clear(); }
  // Small chunks that wait for others to share a message with go without them.
  void Flush(int slot) { queues_[slot]->Flush(); }
  // All chunks of the iteration are queued that will be: under FULL those that wait are sorted.
  void AllQueued(int slot);
  // Removes and returns the chunks of the next message for the stream to send, if any. A message
  // with data has about kMessageBytes, or one chunk.
  std::vector<uint32_t> Pop(int slot, int stream, bool has_data);

 private:
  // Constant after construction, but for what is in the queues.
  const PlannedConfig& config_;
  const bool is_sequential_;
  std::vector<std::unique_ptr<PushQueue>> queues_;  // by slot
  std::vector<uint32_t> last_chunks_;
  std::vector<uint32_t> other_chunks_;
  std::vector<int> last_stream_of_chunk_;  // by chunk: the stream that sends it last, or -1
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_PUSH_LANES_H_
