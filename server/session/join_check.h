#ifndef EVENSHARD_SERVER_SESSION_JOIN_CHECK_H_
#define EVENSHARD_SERVER_SESSION_JOIN_CHECK_H_

#include "absl/status/status.h"
#include "common/placement/planned_config.h"
#include "proto/parameter_server.pb.h"

namespace evenshard {

// Checks that a worker's messages and plans are of this build's versions. Errors:
// FAILED_PRECONDITION.
absl::Status CheckVersions(const JoinRequest& request, int shard);

// Checks that, too, and that a worker has the same config, model and plan as the shard and speaks
// the encodings of the exchange. Errors: FAILED_PRECONDITION, which names what differs if the
// request has the worker's config.
absl::Status CheckJoin(const PlannedConfig& config, const JoinRequest& request, int shard);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_JOIN_CHECK_H_
