#ifndef PS_COMMON_SIMULATOR_SIMULATOR_H_
#define PS_COMMON_SIMULATOR_SIMULATOR_H_

#include <vector>

#include "absl/types/span.h"
#include "common/model/device_profile.h"
#include "common/simulator/cluster_rates.h"
#include "common/simulator/planned_run.h"

namespace ps {

// The bytes that passed through a machine's link.
struct LinkUse {
  double bytes_in = 0;
  double bytes_out = 0;
};

struct Simulation {
  // The time of each iteration, from the end of the previous one or from the start. An iteration
  // ends when the last worker has all parameters back.
  std::vector<double> iteration_seconds;
  // Only the bytes of the iterations in iteration_seconds, of all workers.
  std::vector<LinkUse> shard_payload;
  // All bytes in the simulated time. Under ASYNC a fast worker does more iterations in this time
  // than are in iteration_seconds.
  std::vector<LinkUse> shard_links;
  std::vector<LinkUse> worker_links;

  double seconds() const;
  // The median without the first iteration, which begins with an idle network.
  double steady_seconds() const;
  // Whether the times of the last two iterations differ by at most 1 %.
  bool is_steady() const;
};

// Simulates `iterations` iterations of every worker with the plan, exchange schedule, update policy
// and encodings of the run. `rates` are those of the run's workers and shards, and
// `layer_times` are the times of its layers on the workers' devices.
//
// Every worker computes layer by layer, pushes chunks and waits for parameters as
// worker/exchange/exchange_schedule.h says. A shard answers a chunk when the gradients of all
// workers have been added up (SYNC), or each gradient by itself (ASYNC). Under ASYNC workers that
// have done their iterations continue, so that the network stays as busy for the others.
//
// The simulation leaves out latency, retransmission and the workers' processors. Equal arguments
// give equal results. REQUIRES: iterations >= 1.
Simulation Simulate(const PlannedRun& run, const ClusterRates& rates,
                    absl::Span<const LayerTime> layer_times, int iterations);

}  // namespace ps

#endif  // PS_COMMON_SIMULATOR_SIMULATOR_H_
