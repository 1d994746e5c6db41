#ifndef EVENSHARD_COMMON_CONFIG_CONFIG_CONTRACT_H_
#define EVENSHARD_COMMON_CONFIG_CONFIG_CONTRACT_H_

#include <functional>
#include <string>

#include "proto/config.pb.h"

namespace evenshard {

// Calls `visit` with each path of a file or folder that is set: all strings in `data`,
// model.initial_parameters, recovery.checkpoint.folder, and those of VisitSecurityPaths.
void VisitPaths(ClusterConfig* config, const std::function<void(std::string*)>& visit);

// Calls `visit` with each path that is set in `security` and recovery.etcd.
void VisitSecurityPaths(ClusterConfig* config, const std::function<void(std::string*)>& visit);

// Sets the kind of the shards' optimizer with local steps, if the config does not give it.
void SetOuterKind(ClusterConfig* config);

// Whether a worker and a shard on one host exchange messages all the same and no memory, whatever
// exchange.shared_memory says, because of what the run computes or of its topology.
bool NeedsMessages(const ClusterConfig& config);

// Sets the fields whose default depends on other fields, so that code that reads a config need not
// know these defaults. common/placement/model_checks.h sets those that depend on the model.
void SetDefaults(ClusterConfig* config);

// Whether each gradient is an update by itself, so that workers have no iteration in common. SSP
// with staleness 0 becomes SYNC (SetDefaults).
inline bool IsAsynchronous(const Update& update) {
  return update.policy() == Update::ASYNC ||
         (update.policy() == Update::SSP && update.staleness() > 0);
}

// Whether an update is the mean of several workers' gradients of one iteration, so that workers
// have iterations in common. QUORUM with all workers becomes SYNC (SetDefaults).
inline bool IsSynchronous(const Update& update) {
  return update.policy() == Update::SYNC || update.policy() == Update::QUORUM;
}

// Whether the shards clip the mean gradient by its norm (Config::clips_mean).
inline bool ClipsMean(const ClusterConfig& config) {
  return IsSynchronous(config.update()) && config.update().clip_global_norm() > 0;
}

// Implements Config::Contract. REQUIRES: SetDefaults has set the defaults.
ClusterConfig ContractOf(ClusterConfig config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_CONFIG_CONTRACT_H_
