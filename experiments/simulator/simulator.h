#ifndef PS_EXPERIMENTS_SIMULATOR_SIMULATOR_H_
#define PS_EXPERIMENTS_SIMULATOR_SIMULATOR_H_

#include <vector>

#include "absl/types/span.h"
#include "common/config.h"
#include "common/device_profile.h"
#include "experiments/cluster_rates.h"

namespace ps {

// What passed through a machine's link in the simulated time.
struct LinkUse {
  double bytes_in = 0;
  double bytes_out = 0;
};

struct Simulation {
  // From the end of an iteration to the end of the next, or from the start. An iteration
  // ends when the last worker has all parameters back.
  std::vector<double> iteration_seconds;
  // Of all workers' iterations that are in iteration_seconds, and no more.
  std::vector<LinkUse> shard_payload;
  // Of the whole time, which is longer for a fast worker under ASYNC.
  std::vector<LinkUse> shard_links;
  std::vector<LinkUse> worker_links;

  double seconds() const;
  // The median of all but the first iteration, which begins with nothing under way.
  double steady_seconds() const;
  // Whether the last two iterations are within 1 %.
  bool is_steady() const;
};

// Plays `iterations` of every worker of the config: its plan, exchange schedule, update policy
// and encodings, on machines of the given rates and devices of the given times. `rates` and
// `layer_times` are of the config's workers, shards and layers.
//
// Every worker computes layer by layer, pushes chunks and waits for parameters as
// worker/exchange_schedule.h says; a shard answers a chunk when all workers' gradients are
// added up (SYNC) or each at once (ASYNC). Under ASYNC workers that are done go on, so that
// the others find the network as busy as before.
//
// Left out: latency, retransmission, the processors of the workers. Equal arguments give equal
// results. REQUIRES: iterations >= 1.
Simulation Simulate(const Config& config, const ClusterRates& rates,
                    absl::Span<const LayerTime> layer_times, int iterations);

}  // namespace ps

#endif  // PS_EXPERIMENTS_SIMULATOR_SIMULATOR_H_
