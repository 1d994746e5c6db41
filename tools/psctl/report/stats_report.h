#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_STATS_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_STATS_REPORT_H_

#include <string>

#include "tools/psctl/report/cluster_report.h"

namespace evenshard {

// Formats the report as tables by shard and by worker, in human units. With an earlier report of
// the same cluster, the tables also have rates over the time between the two.
std::string StatsText(const ClusterReport& report, const ClusterReport* earlier = nullptr);

// Formats the report as JSON:
//
//   {"time", "shards": [{"shard", "address", "stats": {...}} or {"shard", "address", "error"}]}
//
// and of a ring "workers" in place of "shards", each a "worker". "stats" is ShardStats, or of a
// ring RingStats, in protobuf's JSON mapping, which has 64-bit integers as strings.
std::string StatsJson(const ClusterReport& report, bool one_line = false);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_STATS_REPORT_H_
