#include "worker/exchange/core/schedule_policy.h"

#include <algorithm>

#include "absl/types/span.h"
#include "common/placement/plan.h"

namespace evenshard {

SchedulePolicy::SchedulePolicy(const PlannedConfig& config)
    : schedule_(config.proto().exchange().schedule()) {
  if (pushes_early()) return;
  const size_t streams = config.proto().limits().connections();
  last_of_stream_.assign(config.plan().chunks().size(), -1);
  for (int shard = 0; shard < config.shards(); ++shard) {
    const absl::Span<const uint32_t> chunks = config.plan().chunks_of_shard(shard);
    for (size_t i = 0; i < std::min(streams, chunks.size()); ++i) {
      last_of_stream_[chunks[chunks.size() - 1 - i]] = static_cast<int>(i);
    }
  }
}

}  // namespace evenshard
