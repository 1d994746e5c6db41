#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_CLUSTER_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_CLUSTER_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "proto/ring.pb.h"

namespace evenshard {

// The longest text in a table that comes from a process.
inline constexpr size_t kCellBytes = 100;

// The answer of one process, or the reason why there is none.
template <typename Stats>
struct ProcessReport {
  std::string address;
  absl::StatusOr<Stats> stats;
};
using ShardReport = ProcessReport<ShardStats>;
using WorkerReport = ProcessReport<RingStats>;

// The answers of all shards at one time, or of all workers of a ring.
struct ClusterReport {
  absl::Time time;
  std::vector<ShardReport> shards = {};
  std::vector<WorkerReport> workers = {};  // by rank; of a ring only

  // The answer that knows the latest ring, or null if no worker of a ring has answered.
  const RingStats* newest_ring() const;
  // Whether a worker has been left out of the ring since it was lost (worker_loss CONTINUE).
  bool is_left_out(int rank) const;
  // Whether every process answered, but for workers that were left out.
  bool complete() const;
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_CLUSTER_REPORT_H_
