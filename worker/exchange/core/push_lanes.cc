#include "worker/exchange/core/push_lanes.h"

#include <algorithm>
#include <limits>

#include "absl/types/span.h"
#include "common/placement/plan.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/encoding.h"

namespace evenshard {

PushLanes::PushLanes(const PlannedConfig* config)
    : config_(*config),
      is_sequential_(config_.proto().exchange().schedule() == ExchangeConfig::SEQUENTIAL) {
  const Plan& plan = config_.plan();
  const size_t streams = config_.proto().limits().connections();
  last_stream_of_chunk_.assign(plan.chunks().size(), -1);
  for (int slot = 0; slot < config_.shards(); ++slot) {
    // Under SEQUENTIAL all chunks are queued at once, or all but the last ones.
    queues_.push_back(
        std::make_unique<PushQueue>(static_cast<int>(streams), is_sequential_ ? 0 : kMessageBytes));
    if (!is_sequential_) continue;
    const absl::Span<const uint32_t> chunks = plan.chunks_of_shard(slot);
    for (size_t i = 0; i < std::min(streams, chunks.size()); ++i) {
      last_stream_of_chunk_[chunks[chunks.size() - 1 - i]] = static_cast<int>(i);
    }
  }
  for (const Chunk& chunk : plan.chunks()) {
    (last_stream_of_chunk_[chunk.id] >= 0 ? last_chunks_ : other_chunks_).push_back(chunk.id);
  }
}

void PushLanes::Queue(uint32_t chunk) {
  PushQueue& queue = *queues_[config_.plan().chunks()[chunk].shard];
  if (last_stream_of_chunk_[chunk] >= 0) {
    queue.PushLast(last_stream_of_chunk_[chunk], chunk);
  } else {
    queue.Push(chunk, EncodedBytes(config_.proto().exchange().gradient_encoding(),
                                   config_.plan().chunks()[chunk].size));
  }
}

void PushLanes::AllQueued(int slot) {
  if (config_.proto().exchange().schedule() == ExchangeConfig::FULL) queues_[slot]->Prioritise();
  queues_[slot]->Flush();
}

std::vector<uint32_t> PushLanes::Pop(int slot, int stream, bool has_data) {
  const int64_t most_bytes = has_data ? kMessageBytes : std::numeric_limits<int64_t>::max();
  return queues_[slot]->Pop(stream, kMostChunks, most_bytes);
}

}  // namespace evenshard
