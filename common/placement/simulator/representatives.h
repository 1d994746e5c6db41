#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_REPRESENTATIVES_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_REPRESENTATIVES_H_

#include <vector>

#include "common/placement/simulator/cluster_rates.h"

namespace evenshard {

// The workers that are simulated, each in place of the equal workers that it stands for.
struct Representatives {
  std::vector<int> ranks;       // ascending
  std::vector<double> members;  // how many workers each stands for, itself included
  std::vector<int> of_rank;     // the index of the representative of each worker
};

// Chooses at most `most` representatives of all workers that have the same link and slowdown. They
// stand for equally many workers, or for one more than others do. The first `singular` workers
// stand for themselves only. REQUIRES: most >= 1.
Representatives RepresentativesOf(const ClusterRates& rates, int most, int singular = 0);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_REPRESENTATIVES_H_
