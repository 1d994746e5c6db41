#ifndef PS_SERVER_JOIN_CHECK_H_
#define PS_SERVER_JOIN_CHECK_H_

#include "absl/status/status.h"
#include "common/config/config.h"
#include "proto/parameter_server.pb.h"

namespace ps {

// Checks that a worker speaks and plans as this build does. Errors: FAILED_PRECONDITION.
absl::Status CheckVersions(const JoinRequest& request, int shard);

// Checks that a worker has the same config, model and plan as the shard. Errors:
// FAILED_PRECONDITION, which names what differs if the request has the worker's config.
absl::Status CheckSameConfig(const Config& config, const JoinRequest& request, int shard);

}  // namespace ps

#endif  // PS_SERVER_JOIN_CHECK_H_
