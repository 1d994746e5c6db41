#ifndef PS_COMMON_SIMULATOR_BOUND_H_
#define PS_COMMON_SIMULATOR_BOUND_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/device_profile.h"
#include "common/simulator/cluster_rates.h"
#include "common/simulator/planned_run.h"

namespace ps {

// The least time of an iteration that the machines allow, in any order of chunks. The bound for
// SEQUENTIAL assumes that workers are in step. If one worker pulls while another pushes, an
// iteration can take as little as the longest of the three parts.
struct Bound {
  double compute_seconds = 0;  // the slowest worker
  double push_seconds = 0;     // gradients through the busiest link or shard
  double pull_seconds = 0;     // parameters through the busiest link
  // The sum of the three under SEQUENTIAL, which does one after another. The other schedules can
  // overlap them, so it is the longest. With equal links of rate B, model size M and W workers, the
  // exchange takes max(M / B, W * max_shard_bytes / B).
  double iteration_seconds = 0;
};

// Computes the bound of an iteration in which every worker takes part. `rates` and `layer_times`
// are those of the run's workers, shards and layers.
Bound BoundOf(const PlannedRun& run, const ClusterRates& rates,
              absl::Span<const LayerTime> layer_times);

// Returns the bytes of an element on the wire.
int64_t ElementBytes(Encoding encoding);

}  // namespace ps

#endif  // PS_COMMON_SIMULATOR_BOUND_H_
