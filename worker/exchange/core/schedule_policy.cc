#include "worker/exchange/core/schedule_policy.h"

#include <algorithm>
#include <utility>

#include "absl/types/span.h"
#include "common/placement/plan/plan.h"

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

std::vector<uint32_t> SchedulePolicy::Release(std::vector<uint32_t>& waiting, bool all_pushed,
                                              bool all_sent) const {
  if (pushes_early()) return std::exchange(waiting, {});
  if (!all_pushed) return {};
  std::sort(waiting.begin(), waiting.end());
  auto first = std::stable_partition(waiting.begin(), waiting.end(), [this](uint32_t chunk) {
    return LastOfStream(chunk).has_value();
  });
  if (first == waiting.end()) {  // only the streams' last chunks are left
    if (!all_sent) return {};
    first = waiting.begin();
  }
  std::vector<uint32_t> released(first, waiting.end());
  waiting.erase(first, waiting.end());
  return released;
}

}  // namespace evenshard
