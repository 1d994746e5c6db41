#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PREDICTION_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PREDICTION_H_

#include "absl/types/span.h"
#include "common/placement/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"

namespace evenshard {

// Predicts the seconds of an iteration, the mean of all but the first. This is the figure by which
// AUTO decides. It simulates only as many workers and iterations as that needs, and takes about
// 0.06 s of a processor; plans of many chunks take seconds at most. The arguments are Simulate's.
double PredictIterationSeconds(const PlannedRun& run, const ClusterRates& rates,
                               absl::Span<const LayerTime> layer_times);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_PREDICTION_H_
