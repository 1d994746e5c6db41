#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATOR_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATOR_H_

#include <vector>

#include "absl/types/span.h"
#include "common/placement/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"

namespace evenshard {

struct SimulationOptions {
  int iterations = 4;  // of every worker; at least 1
  // How many of the workers with equal links and devices are simulated, at most. Each stands for
  // equally many of them. The time of a simulation grows with this number, and no longer with that
  // of equal workers. docs/experiment.md says how exact the results are.
  int representatives = 16;
  // The number of bins of the timeline; 0: without one.
  int timeline_bins = 0;
};

// The bytes that passed through a machine's link.
struct LinkUse {
  double bytes_in = 0;
  double bytes_out = 0;
};

// How busy the shards' links are in the course of the last iteration, in bins of equal length.
struct Timeline {
  struct Link {
    std::vector<double> in;  // the fraction of each bin in which the link was busy
    std::vector<double> out;
  };

  double begin_seconds = 0;  // the end of the iteration before
  double bin_seconds = 0;
  std::vector<Link> shards;
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
  Timeline timeline;

  double seconds() const;
  // The median without the first iteration, which begins with an idle network.
  double steady_seconds() const;
  // Whether the times of the last two iterations differ by at most 1 %.
  bool is_steady() const;
};

// Simulates a run with its plan, exchange schedule, update policy and encodings. `rates` are those
// of the run's workers and shards, and `layer_times` are the times of its layers on the workers'
// devices.
//
// Every worker computes layer by layer, pushes chunks and waits for parameters as
// worker/exchange/core/exchange_schedule.h says. A shard answers a chunk when the gradients of all
// workers have been added up (SYNC), with clipping by norm those of all chunks, or each gradient by
// itself, under SSP once the worker is not too far ahead. Under ASYNC and SSP workers that have
// done their iterations continue, so that the network stays as busy for the others.
//
// The simulation leaves out latency, retransmission and the workers' processors. Equal arguments
// give equal results.
Simulation Simulate(const PlannedRun& run, const ClusterRates& rates,
                    absl::Span<const LayerTime> layer_times, const SimulationOptions& options = {});

// Predicts the seconds of an iteration in a long run: the mean of all but the first or, where
// workers fall out of step, of the second half. This is the figure by which AUTO decides. It
// simulates only as many workers and iterations as that needs, and takes about 0.06 s of a
// processor; plans of many chunks take seconds at most. The arguments are Simulate's.
double PredictIterationSeconds(const PlannedRun& run, const ClusterRates& rates,
                               absl::Span<const LayerTime> layer_times);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATOR_H_
