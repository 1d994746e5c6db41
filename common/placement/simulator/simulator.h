#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATOR_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATOR_H_

#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"
#include "common/placement/simulator/simulation.h"

namespace evenshard {

// Simulates a run with its plan, exchange schedule, update policy and encodings. `rates` are those
// of the run's workers and shards, and `layer_times` are the times of its layers on the workers'
// devices.
//
// Every worker computes layer by layer, pushes chunks and waits for parameters as
// worker/exchange/core/exchange_schedule.h says. A shard answers a chunk when the gradients of all
// workers have been added up (SYNC), with clipping by norm those of all chunks; under QUORUM when
// the iteration's set is decided (server/agreement/quorum_decider.h); or each gradient by itself,
// under SSP once the worker is not too far ahead. Under ASYNC and SSP workers that have done their
// iterations continue, so that the network stays as busy for the others. In a ring sums and
// parameters go from worker to worker (worker/ring/core/ring_round.h).
//
// The simulation leaves out retransmission and the workers' processors. Equal arguments give equal
// results.
Simulation Simulate(const PlannedRun& run, const ClusterRates& rates,
                    absl::Span<const LayerTime> layer_times, const SimulationOptions& options = {});

// What a long run is like.
struct Prediction {
  double iteration_seconds = 0;
  // The batches of all workers that count, which with local steps are several in an iteration.
  double batches_per_second = 0;
};

// Predicts the mean of all iterations but the first or, where workers fall out of step, of the
// second half. AUTO decides by iteration_seconds. It simulates only as many workers and iterations
// as that needs, and takes about 0.06 s of a processor; plans of many chunks take seconds at most.
// The arguments are Simulate's.
Prediction Predict(const PlannedRun& run, const ClusterRates& rates,
                   absl::Span<const LayerTime> layer_times);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATOR_H_
