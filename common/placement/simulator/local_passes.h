#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_LOCAL_PASSES_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_LOCAL_PASSES_H_

#include <algorithm>

#include "proto/config.pb.h"

namespace evenshard {

// How many batches a worker trains on in an iteration, which with local steps is a round.
// `pass_seconds` is how long it takes for one. The workers' own optimizers take no time.
inline double LocalPasses(const ClusterConfig& config, double pass_seconds) {
  if (!config.has_local()) return 1;
  const double steps = config.local().steps();
  if (config.local().seconds() == 0 || pass_seconds == 0) return steps;
  return std::clamp(config.local().seconds() / pass_seconds, 1.0, steps);
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_LOCAL_PASSES_H_
