#ifndef EVENSHARD_SERVER_SHARD_UPDATE_WAITS_H_
#define EVENSHARD_SERVER_SHARD_UPDATE_WAITS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/admin.pb.h"
#include "server/session/membership.h"
#include "server/update/update_policy.h"

namespace evenshard {

// What is said of updates that some workers have pushed for and others have not.
using PendingUpdates = std::vector<UpdatePolicy::Pending>;

// Returns the update that has waited longest, or null if there is none.
const UpdatePolicy::Pending* Oldest(const PendingUpdates& updates);

// Errors: ABORTED if an update waits for a worker that has finished. `left`: the ranks that had, in
// ascending order, before the updates were looked at.
absl::Status CheckNoneHasFinished(const PendingUpdates& updates, const std::vector<uint32_t>& left,
                                  const Membership& membership);

// Sets ShardStats.wait if an update has waited for longer than every update does.
void FillWait(const PendingUpdates& updates, absl::Time now, ShardStats* stats);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SHARD_UPDATE_WAITS_H_
