#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_RING_STATS_TEXT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_RING_STATS_TEXT_H_

#include <string>

#include "tools/psctl/report/cluster_report.h"

namespace evenshard {

// StatsText of a ring: tables by worker. REQUIRES: report.workers is not empty.
std::string RingStatsText(const ClusterReport& report, const ClusterReport* earlier);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_RING_STATS_TEXT_H_
