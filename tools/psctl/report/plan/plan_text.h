#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_TEXT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_TEXT_H_

#include <optional>
#include <string>

#include "absl/types/span.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// Formats the plan of one config. `name` is the config's file, and `link_gbps` that of
// MakePlanReport.
std::string PlanText(const std::string& name, const PlannedConfig& config,
                     std::optional<double> link_gbps = std::nullopt);

// Formats several plans side by side, in a shorter form. `names` are the files of `configs`.
std::string PlanComparison(absl::Span<const std::string> names,
                           absl::Span<const PlannedConfig> configs,
                           std::optional<double> link_gbps = std::nullopt);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_PLAN_TEXT_H_
