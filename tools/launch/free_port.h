#ifndef EVENSHARD_TOOLS_LAUNCH_FREE_PORT_H_
#define EVENSHARD_TOOLS_LAUNCH_FREE_PORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/config.h"

namespace evenshard {

// Checks that each shard's and spare's address belongs to this machine and is free; otherwise
// workers could reach the shards of another run. Returns an override ("shard[1].address=host:4711")
// with a free port for each one whose address has the port 0, so that all processes agree on it.
// Another process can still take the port before the shard listens on it; the shard then fails with
// the reason.
//
// Errors: INVALID_ARGUMENT, which names the shard.
absl::StatusOr<std::vector<std::string>> FreePortOverrides(const Config& config);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_FREE_PORT_H_
