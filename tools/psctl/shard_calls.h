#ifndef PS_TOOLS_PSCTL_SHARD_CALLS_H_
#define PS_TOOLS_PSCTL_SHARD_CALLS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/config.h"
#include "proto/admin.pb.h"

namespace ps {

// These functions call all shards of a config at the same time and block for at most `timeout`. The
// result has an entry for each shard, which is an error if the call failed.
std::vector<absl::StatusOr<ShardStats>> GetStats(const Config& config, absl::Duration timeout);
std::vector<absl::Status> ShutDownShards(const Config& config, absl::Duration timeout);

// Likewise for all ps processes, the spares of `recovery` last.
std::vector<absl::StatusOr<View>> GetViews(const Config& config, absl::Duration timeout);

}  // namespace ps

#endif  // PS_TOOLS_PSCTL_SHARD_CALLS_H_
