#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATION_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATION_H_

#include <vector>

namespace evenshard {

// An iteration that takes longer is a slip of rates, and beyond it figures mean nothing.
inline constexpr double kMostIterationSeconds = 1e9;

struct SimulationOptions {
  int iterations = 4;  // of every worker; at least 1
  // How many of the workers with equal links and devices are simulated, at most. Each stands for
  // equally many of them. The time of a simulation grows with this number, and no longer with that
  // of equal workers. docs/experiment.md says how exact the results are. Workers with a shard on
  // their host are all simulated; of a ring two are if all workers are equal, and otherwise all.
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
  // ends when the last worker has all parameters back; under QUORUM when the last worker has whose
  // gradient counts.
  std::vector<double> iteration_seconds;
  // By iteration: on how many batches all workers together have trained until its end, without
  // those that did not count. Under ASYNC a fast worker has trained on more than others, and with
  // local steps an iteration has several.
  std::vector<double> batches;
  // Only the bytes of the iterations in iteration_seconds, of all workers.
  std::vector<LinkUse> shard_payload;
  // All bytes in the simulated time. Under ASYNC a fast worker does more iterations in this time
  // than are in iteration_seconds. A worker and a shard on one host share the link, and both are
  // said to have passed all its bytes.
  std::vector<LinkUse> shard_links;
  std::vector<LinkUse> worker_links;
  Timeline timeline;

  double seconds() const;
  // The batches of all workers in a second, from the end of an iteration on.
  // REQUIRES: 0 <= iteration < the number of iterations - 1.
  double batches_per_second(int iteration) const;
  // The median without the first iteration, which begins with an idle network.
  double steady_seconds() const;
  // Whether the times of the last two iterations differ by at most 1 %.
  bool is_steady() const;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_SIMULATION_H_
