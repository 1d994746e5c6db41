#ifndef PS_EXPERIMENTS_BOUND_H_
#define PS_EXPERIMENTS_BOUND_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/config/config.h"
#include "common/model/device_profile.h"
#include "experiments/cluster_rates.h"

namespace ps {

// The least time of an iteration that the machines allow, whatever the order of chunks. For
// SEQUENTIAL it supposes workers in step: out of step, one pulls while another pushes, and an
// iteration can take as little as the longest of the parts.
struct Bound {
  double compute_seconds = 0;  // of the slowest worker
  double push_seconds = 0;     // of the busiest link or shard, gradients
  double pull_seconds = 0;     // of the busiest link, parameters
  // SEQUENTIAL does one after the other: the sum. The other schedules can overlap all of
  // it: the longest. With equal links of rate B that is max(M/B, W * max_shard_bytes / B).
  double iteration_seconds = 0;
};

// Of one iteration of every worker. `rates` and `layer_times` are of the config's workers,
// shards and layers.
Bound BoundOf(const Config& config, const ClusterRates& rates,
              absl::Span<const LayerTime> layer_times);

// Bytes of an element on the wire.
int64_t ElementBytes(Encoding encoding);

}  // namespace ps

#endif  // PS_EXPERIMENTS_BOUND_H_
