#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_RING_BOUND_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_RING_BOUND_H_

#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"

namespace evenshard {

// BoundOf for a ring. REQUIRES: run.ring is not null.
Bound RingBoundOf(const PlannedRun& run, const ClusterRates& rates,
                  absl::Span<const LayerTime> layer_times);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_RING_BOUND_H_
