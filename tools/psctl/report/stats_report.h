#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_STATS_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_STATS_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"

namespace evenshard {

// The answer of one shard, or the reason why there is none.
struct ShardReport {
  std::string address;
  absl::StatusOr<ShardStats> stats;
};

// The answers of all shards at one time.
struct ClusterReport {
  absl::Time time;
  std::vector<ShardReport> shards;

  bool complete() const;  // whether every shard answered
};

// Formats the report as tables by shard and by worker, in human units. With an earlier report of
// the same cluster, the tables also have rates over the time between the two.
std::string StatsText(const ClusterReport& report, const ClusterReport* earlier = nullptr);

// Formats the report as JSON:
//
//   {"time", "shards": [{"shard", "address", "stats": {...}} or {"shard", "address", "error"}]}
//
// "stats" is ShardStats in protobuf's JSON mapping, which has 64-bit integers as strings.
std::string StatsJson(const ClusterReport& report, bool one_line = false);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_STATS_REPORT_H_
