#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_RING_CLUSTER_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_RING_CLUSTER_H_

#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"
#include "common/placement/simulator/simulation.h"

namespace evenshard {

// Simulate for a ring, whose parts of a bucket count as equal. There is no timeline. REQUIRES:
// run.ring is not null.
Simulation SimulateRing(const PlannedRun& run, const ClusterRates& rates,
                        absl::Span<const LayerTime> layer_times, const SimulationOptions& options);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_RING_CLUSTER_H_
