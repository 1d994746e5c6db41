#include "worker/exchange/core/push_lanes.h"

#include <limits>
#include <optional>

#include "common/placement/plan.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"

namespace evenshard {

PushLanes::PushLanes(const PlannedConfig* config, const SchedulePolicy* schedule)
    : config_(*config), schedule_(*schedule) {
  // What is pushed all at once need not wait for more.
  const int64_t least_bytes = schedule_.pushes_early() ? kMessageBytes : 0;
  for (int slot = 0; slot < config_.shards(); ++slot) {
    queues_.push_back(
        std::make_unique<PushQueue>(config_.proto().limits().connections(), least_bytes));
  }
}

void PushLanes::Queue(uint32_t chunk) {
  const Chunk& queued = config_.plan().chunks()[chunk];
  PushQueue& queue = *queues_[queued.shard];
  if (const std::optional<int> stream = schedule_.LastOfStream(chunk); stream.has_value()) {
    queue.PushLast(*stream, chunk);
  } else {
    queue.Push(chunk, EncodedBytes(config_.proto().exchange().gradient_encoding(), queued.size));
  }
}

void PushLanes::AllQueued(int slot) {
  if (schedule_.sorts_at_end()) queues_[slot]->Prioritise();
  queues_[slot]->Flush();
}

std::vector<uint32_t> PushLanes::Pop(int slot, int stream, bool has_data) {
  const int64_t most_bytes = has_data ? kMessageBytes : std::numeric_limits<int64_t>::max();
  return queues_[slot]->Pop(stream, kMostChunks, most_bytes);
}

}  // namespace evenshard
