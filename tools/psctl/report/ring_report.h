#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_RING_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_RING_REPORT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// What psctl plan says of a ring: its buckets, the part of each worker, and the bytes that pass
// through each link in an iteration. `link_gbps` (10^9 bits per second) takes the place of the
// config's worker_link_gbps. REQUIRES: config.is_ring(). Errors: those of RingPlan::Create.
absl::StatusOr<std::string> RingPlanText(const std::string& name, const PlannedConfig& config,
                                         std::optional<double> link_gbps);
absl::StatusOr<std::string> RingPlanJson(const std::string& name, const PlannedConfig& config,
                                         std::optional<double> link_gbps);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_RING_REPORT_H_
