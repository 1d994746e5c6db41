#include "tools/psctl/report/cluster_report.h"

#include "absl/algorithm/container.h"

namespace evenshard {

const RingStats* ClusterReport::newest_ring() const {
  const RingStats* newest = nullptr;
  for (const WorkerReport& worker : workers) {
    if (!worker.stats.ok()) continue;
    if (newest == nullptr || worker.stats->generation() > newest->generation()) {
      newest = &*worker.stats;
    }
  }
  return newest;
}

bool ClusterReport::is_left_out(int rank) const {
  const RingStats* const ring = newest_ring();
  return ring != nullptr && !workers[rank].stats.ok() &&
         !absl::c_linear_search(ring->member(), static_cast<uint32_t>(rank));
}

bool ClusterReport::complete() const {
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    if (!workers[rank].stats.ok() && !is_left_out(static_cast<int>(rank))) return false;
  }
  return absl::c_all_of(shards, [](const ShardReport& shard) { return shard.stats.ok(); });
}

}  // namespace evenshard
