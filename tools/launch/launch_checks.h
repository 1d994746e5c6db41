#ifndef EVENSHARD_TOOLS_LAUNCH_LAUNCH_CHECKS_H_
#define EVENSHARD_TOOLS_LAUNCH_LAUNCH_CHECKS_H_

#include "absl/status/status.h"
#include "common/placement/planned_config.h"
#include "tools/launch/launch_options.h"

namespace evenshard {

// Refuses, before anything is started or written, what launch cannot do with the config, and what
// its processes would fail with. Reads the data. Errors name the flag or the field, and what is
// allowed.
absl::Status CheckLaunch(const LaunchOptions& options, const PlannedConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_LAUNCH_CHECKS_H_
