#ifndef PS_TOOLS_PSCTL_STATS_REPORT_H_
#define PS_TOOLS_PSCTL_STATS_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "proto/admin.pb.h"

namespace ps {

// What one shard answered, or why it did not.
struct ShardReport {
  std::string address;
  absl::StatusOr<ShardStats> stats;
};

// All shards' answers, by shard, at one time.
struct ClusterReport {
  absl::Time time;
  std::vector<ShardReport> shards;

  bool complete() const;  // whether every shard answered
};

// Tables per shard and per worker in human units. With an earlier report of the same
// cluster, rates over the time between the two as well.
std::string StatsText(const ClusterReport& report, const ClusterReport* earlier = nullptr);

// {"time", "shards": [{"shard", "address", "stats": {...}} or {"shard", "address", "error"}]};
// "stats" is ShardStats in protobuf's JSON mapping, 64-bit integers as strings.
std::string StatsJson(const ClusterReport& report, bool one_line = false);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_STATS_REPORT_H_
