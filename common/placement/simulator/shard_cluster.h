#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SHARD_CLUSTER_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SHARD_CLUSTER_H_

#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"
#include "common/placement/simulator/simulation.h"

namespace evenshard {

// Simulate for workers with shards. REQUIRES: run.ring is null.
Simulation SimulateShards(const PlannedRun& run, const ClusterRates& rates,
                          absl::Span<const LayerTime> layer_times,
                          const SimulationOptions& options);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SHARD_CLUSTER_H_
