#ifndef PS_TOOLS_PSCTL_SHARD_CALLS_H_
#define PS_TOOLS_PSCTL_SHARD_CALLS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/config.h"
#include "proto/admin.pb.h"

namespace ps {

// These functions call several processes of a config at the same time and block for at most
// `timeout`. The result has an entry for each, which is an error if the call failed.

// The addresses of all ps processes, the spares of `recovery` last.
std::vector<std::string> ProcessAddresses(const Config& config);

// Asks all ps processes which view they follow.
std::vector<absl::StatusOr<View>> GetViews(const Config& config, absl::Duration timeout);

// Returns for each slot the address of its primary, by the newest view that any process follows.
// Without `recovery`, and where nobody follows a view, it is the address in the config. Errors:
// UNAVAILABLE for a slot without primary.
std::vector<absl::StatusOr<std::string>> PrimaryAddresses(const Config& config,
                                                          absl::Duration timeout);

// Asks the process at the address of each slot for the statistics of that slot. A slot whose
// address is an error has that error.
std::vector<absl::StatusOr<ShardStats>> GetStats(
    const Config& config, const std::vector<absl::StatusOr<std::string>>& primaries,
    absl::Duration timeout);

// Returns the config of a file with a model: that of model.from_workers comes from the run, if the
// file does not have it. Errors: those of Config::Load; INVALID_ARGUMENT if no process of the run
// knows the model.
absl::StatusOr<Config> LoadWithModel(const std::string& path,
                                     absl::Span<const std::string> overrides,
                                     absl::Duration timeout);

// Ends all ps processes.
std::vector<absl::Status> ShutDownProcesses(const Config& config, absl::Duration timeout);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_SHARD_CALLS_H_
