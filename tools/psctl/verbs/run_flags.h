#ifndef EVENSHARD_TOOLS_PSCTL_VERBS_RUN_FLAGS_H_
#define EVENSHARD_TOOLS_PSCTL_VERBS_RUN_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/config/config.h"
#include "common/process/command_line.h"
#include "common/process/local_run.h"

namespace evenshard {

// Which run a verb asks: --config with --set, or --run for one that launch has started on this
// machine.
struct RunFlags {
  std::string config;
  std::string run;
  std::vector<std::string> overrides;

  Flag Config() { return {"config", "FILE", "the run's config", &config}; }
  Flag Run() {
    return {"run", "NAME", "in its place, a run that launch has started on this machine", &run};
  }
  Flag Set() {
    return {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated", &overrides};
  }

  // Sets the config and the overrides to those of the run, if it is given by its name, or if
  // neither is given to those of the latest one. The verb speaks as an operator, unless an override
  // of security.name says otherwise. Errors: INVALID_ARGUMENT, NOT_FOUND.
  absl::Status Resolve();
};

// Loads the config of a run whose processes a verb asks. Errors: those of Config::Load and
// CheckSecurity.
absl::StatusOr<Config> LoadRun(const RunFlags& flags);

// The same for a verb that asks shards. Errors: also those of Config::CheckHasShards.
absl::StatusOr<Config> LoadWithShards(const RunFlags& flags);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_VERBS_RUN_FLAGS_H_
