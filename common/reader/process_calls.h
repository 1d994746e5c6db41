#ifndef EVENSHARD_COMMON_READER_PROCESS_CALLS_H_
#define EVENSHARD_COMMON_READER_PROCESS_CALLS_H_

#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "proto/ring.pb.h"

namespace evenshard {

// These functions call several processes of a config at the same time and block for at most
// `timeout`, or until `stop` is requested. The result has an entry for each, which is an error if
// the call failed.

// The addresses of all ps processes, the spares of `recovery` last.
std::vector<std::string> ProcessAddresses(const Config& config);

// Asks all ps processes which view they follow.
std::vector<absl::StatusOr<View>> GetViews(const Config& config, absl::Duration timeout,
                                           const std::stop_token& stop = {});

// Returns the newest of the views, or nullptr if nobody answered.
const View* NewestView(absl::Span<const absl::StatusOr<View>> views);

// Returns for each slot the address of its primary, by the newest of the views, in printable text
// (Printable). Without a view it is the address in the config. Errors: UNAVAILABLE for a slot
// without primary.
std::vector<absl::StatusOr<std::string>> PrimariesIn(const Config& config,
                                                     absl::Span<const absl::StatusOr<View>> views);

// Returns the same by the newest view that any process follows. Without `recovery` nobody does.
std::vector<absl::StatusOr<std::string>> PrimaryAddresses(const Config& config,
                                                          absl::Duration timeout,
                                                          const std::stop_token& stop = {});

// Asks the process at the address of each slot for the statistics of that slot. A slot whose
// address is an error has that error.
std::vector<absl::StatusOr<ShardStats>> GetStats(
    const Config& config, const std::vector<absl::StatusOr<std::string>>& primaries,
    absl::Duration timeout, const std::stop_token& stop = {});

// Asks all workers of a ring for their statistics, by rank.
std::vector<absl::StatusOr<RingStats>> GetRingStats(const Config& config, absl::Duration timeout,
                                                    const std::stop_token& stop = {});

// Returns the config with a model: that of model.from_workers comes from the run, if the config
// does not have it. Errors: UNAVAILABLE if no process of the run knows the model, with the field
// and what one of them said.
absl::StatusOr<PlannedConfig> WithModel(const PlannedConfig& config, absl::Duration timeout,
                                        const std::stop_token& stop = {});

// The same for the config of a file. Errors: also those of PlannedConfig::Load.
absl::StatusOr<PlannedConfig> LoadWithModel(const std::string& path,
                                            absl::Span<const std::string> overrides,
                                            absl::Duration timeout = absl::Seconds(5));

// Ends all ps processes.
std::vector<absl::Status> ShutDownProcesses(const Config& config, absl::Duration timeout);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_READER_PROCESS_CALLS_H_
