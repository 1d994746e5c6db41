#ifndef PS_TOOLS_LAUNCH_FREE_PORT_H_
#define PS_TOOLS_LAUNCH_FREE_PORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/config.h"

namespace ps {

// Checks that the shards' addresses are free ones of this machine, so that workers do not
// find other shards there, and returns overrides ("shard[1].address=host:4711") that give
// each shard whose address has the port 0 a free port, so that other processes can find
// it. Another process can take a port before the shard listens on it, which then says so.
//
// Errors: INVALID_ARGUMENT naming the shard.
absl::StatusOr<std::vector<std::string>> FreePortOverrides(const Config& config);

}  // namespace ps

#endif  // PS_TOOLS_LAUNCH_FREE_PORT_H_
