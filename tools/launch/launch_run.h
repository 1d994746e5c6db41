#ifndef EVENSHARD_TOOLS_LAUNCH_LAUNCH_RUN_H_
#define EVENSHARD_TOOLS_LAUNCH_LAUNCH_RUN_H_

#include "common/placement/planned_config.h"
#include "tools/launch/coordinator.h"
#include "tools/launch/launch_options.h"
#include "tools/launch/supervisor.h"

namespace evenshard {

// Says which processes the run has: their commands, their environment, and what is checked when
// they end. `columns` is the width of the terminal, or 0. `coordinator` is null without `recovery`.
// It and the config must outlive the run.
SupervisedRun MakeRun(const LaunchOptions& options, const PlannedConfig& config, int columns,
                      CoordinatorServer* coordinator);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_LAUNCH_RUN_H_
