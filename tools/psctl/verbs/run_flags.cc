#include "tools/psctl/verbs/run_flags.h"

#include "common/base/status_macros.h"
#include "common/security/tls_files.h"

namespace evenshard {

absl::Status RunFlags::Resolve() {
  overrides.insert(overrides.begin(), NameOverride({.role = Role::kOperator}));
  if (!config.empty()) {
    return run.empty() ? absl::OkStatus()
                       : absl::InvalidArgumentError(
                             "--run: is given beside --config, allowed: one of the two");
  }
  ASSIGN_OR_RETURN(const LocalRun found, FindLocalRun(run));
  config = found.config;
  overrides.insert(overrides.begin(), found.overrides.begin(), found.overrides.end());
  return absl::OkStatus();
}

absl::StatusOr<Config> LoadRun(const RunFlags& flags) {
  ASSIGN_OR_RETURN(Config config, Config::Load(flags.config, flags.overrides));
  RETURN_IF_ERROR(CheckSecurity(config.proto()));
  return config;
}

absl::StatusOr<Config> LoadWithShards(const RunFlags& flags) {
  ASSIGN_OR_RETURN(Config config, LoadRun(flags));
  RETURN_IF_ERROR(config.CheckHasShards());
  return config;
}

}  // namespace evenshard
