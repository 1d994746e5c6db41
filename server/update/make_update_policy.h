#ifndef EVENSHARD_SERVER_UPDATE_MAKE_UPDATE_POLICY_H_
#define EVENSHARD_SERVER_UPDATE_MAKE_UPDATE_POLICY_H_

#include <memory>

#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "server/agreement/clipping.h"
#include "server/agreement/quorum.h"
#include "server/store/chunk_observer.h"
#include "server/store/parameter_store.h"
#include "server/update/update_policy.h"

namespace evenshard {

// Returns the config's policy for the chunks of `store`, each of which goes on from its clock. All
// that is pointed to, the observers too, must outlive it. `clipping` is null unless the config
// clips the mean, and `quorum` unless the policy is QUORUM; then UpdatePolicy::Resume must be
// called for every chunk when the norm, and the set of workers, is known.
std::unique_ptr<UpdatePolicy> MakeUpdatePolicy(const PlannedConfig& config, ParameterStore* store,
                                               ChunkObservers observers, const Clock* clock,
                                               Clipping* clipping = nullptr,
                                               Quorum* quorum = nullptr);

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_MAKE_UPDATE_POLICY_H_
