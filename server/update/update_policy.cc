#include "server/update/update_policy.h"

#include "server/update/async_policy.h"
#include "server/update/sync_policy.h"

namespace evenshard {

std::unique_ptr<UpdatePolicy> UpdatePolicy::Create(const PlannedConfig& config,
                                                   ParameterStore* store, UpdateObserver* observer,
                                                   Snapshots* snapshots, const Clock* clock) {
  if (config.proto().update().policy() == Update::SYNC) {
    return std::make_unique<SyncPolicy>(config, store, observer, snapshots, clock);
  }
  return std::make_unique<AsyncPolicy>(config, store, observer, snapshots);
}

}  // namespace evenshard
