#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_RING_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_RING_REPORT_H_

#include <optional>
#include <string>

#include "common/placement/planned_config.h"

namespace evenshard {

// What psctl plan says of a ring: its buckets, the part of each worker, the bytes that pass through
// each link in an iteration, and the time that it is predicted to take. `link_gbps` (10^9 bits per
// second) takes the place of the config's worker_link_gbps. REQUIRES: config.is_ring().
std::string RingPlanText(const std::string& name, const PlannedConfig& config,
                         std::optional<double> link_gbps);
std::string RingPlanJson(const std::string& name, const PlannedConfig& config,
                         std::optional<double> link_gbps);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_RING_REPORT_H_
