#ifndef EVENSHARD_TOOLS_LAUNCH_FREE_PORT_H_
#define EVENSHARD_TOOLS_LAUNCH_FREE_PORT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/config.h"

namespace evenshard {

// Checks that each address of a shard, a spare or a worker in a ring belongs to this machine and is
// free; otherwise workers could reach the processes of another run. Returns an override
// ("shard[1].address=host:4711") with a free port for each one whose address has the port 0, so
// that all processes agree on it. Another process can still take the port before the one that it is
// for listens on it, which then fails with the reason.
//
// Errors: INVALID_ARGUMENT, which names the field.
absl::StatusOr<std::vector<std::string>> FreePortOverrides(const Config& config);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_FREE_PORT_H_
