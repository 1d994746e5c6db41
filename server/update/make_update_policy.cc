#include "server/update/make_update_policy.h"

#include <utility>

#include "server/update/async_policy.h"
#include "server/update/sync_policy.h"

namespace evenshard {

std::unique_ptr<UpdatePolicy> MakeUpdatePolicy(const PlannedConfig& config, ParameterStore* store,
                                               ChunkObservers observers, const Clock* clock,
                                               Clipping* clipping, Quorum* quorum) {
  if (config.is_synchronous()) {
    return std::make_unique<SyncPolicy>(config, store, std::move(observers), clock, clipping,
                                        quorum);
  }
  return std::make_unique<AsyncPolicy>(config, store, std::move(observers), clock);
}

}  // namespace evenshard
