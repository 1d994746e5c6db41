#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_USAGE_TEXT_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_USAGE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/worker_usage.pb.h"

namespace evenshard {

// What a worker has reported last, and how long ago. `usage` is null if it has not reported.
struct ReportedUsage {
  uint32_t worker = 0;
  const WorkerUsage* usage = nullptr;
  double seconds_ago = 0;
};

// Formats what workers use of their machines as a table.
std::string UsageText(const std::vector<ReportedUsage>& workers);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_USAGE_TEXT_H_
