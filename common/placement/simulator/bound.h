#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_BOUND_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_BOUND_H_

#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/planned_run.h"

namespace evenshard {

// One reason why an iteration cannot be shorter: computing that nothing of a transfer can overlap,
// and then the transfer.
struct BoundTerm {
  enum Kind {
    kCompute,          // a worker computes; there is no transfer
    kWorkerLink,       // what a worker exchanges, if it is alone
    kShardIn,          // what all workers push through a shard's link
    kShardProcessing,  // what a shard takes in of all workers (ShardAddress.server_gbps)
    kShardOut,         // what all workers pull through a shard's link
    kHostIn,           // what comes to a worker and to the shard on its host
    kHostOut,          // what leaves both
    // With clipping by norm all of a shard's have the shortest way of one worker in the other
    // direction too.
  };

  Kind kind = kCompute;
  int machine = 0;  // rank of the worker, or the shard; the two are equal on a host of both
  int layer = 0;    // the transfer has this layer and those before it
  double compute_seconds = 0;
  double transfer_seconds = 0;

  double seconds() const { return compute_seconds + transfer_seconds; }
};

// A time that no iteration can beat, in any order of chunks. It holds for the mean of iterations
// that begin and end with all parameters on all workers. docs/experiment.md, "The bound", has the
// proof for each schedule and policy.
struct Bound {
  // The parts of an iteration, each by itself.
  double compute_seconds = 0;  // the slowest worker
  double push_seconds = 0;     // gradients, or sums of them, through the busiest link or shard
  double pull_seconds = 0;     // parameters through the busiest link
  // The largest of all terms. The bound is its seconds().
  BoundTerm term;
  // The sum of the three parts, which is the bound under SEQUENTIAL if all workers are in step.
  // Workers that fall out of step push while others pull, and are faster.
  double in_step_seconds = 0;

  double iteration_seconds() const { return term.seconds(); }
};

// Computes the bound of an iteration in which every worker takes part, also under QUORUM, where
// updates may be made without the slowest. `rates` and `layer_times`
// are those of the run's workers, shards and layers.
Bound BoundOf(const PlannedRun& run, const ClusterRates& rates,
              absl::Span<const LayerTime> layer_times);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_BOUND_H_
