#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_JSON_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_JSON_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Returns {"plans": [...]} with all of each PlanReport and every slice. `names` are the files of
// `configs`, and `link_gbps` is that of MakePlanReport.
std::string PlanJson(absl::Span<const std::string> names, absl::Span<const PlannedConfig> configs,
                     std::optional<double> link_gbps = std::nullopt);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_JSON_H_
