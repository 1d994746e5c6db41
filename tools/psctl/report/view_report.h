#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_VIEW_REPORT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_VIEW_REPORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/view.pb.h"

namespace evenshard {

// The answers of all ps processes, by index, to the question which view they follow.
using ViewReport = std::vector<absl::StatusOr<View>>;

// Formats the newest view as tables by slot and by worker, and says which processes follow an older
// one or do not answer.
std::string ViewText(const ViewReport& report);

// Formats the report as JSON:
//
//   {"view": {...} or null, "processes": [{"process", "view": number} or {"process", "error"}]}
//
// "view" is the newest View in protobuf's JSON mapping, which has 64-bit integers as strings.
std::string ViewJson(const ViewReport& report);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_VIEW_REPORT_H_
