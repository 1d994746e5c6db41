#ifndef PS_EXPERIMENTS_CLUSTER_RATES_H_
#define PS_EXPERIMENTS_CLUSTER_RATES_H_

#include <vector>

namespace ps {

// How fast the machines of a cluster are. A link has its rate in each direction at once.
struct ClusterRates {
  // Payload, in bytes per second, by rank and by shard.
  std::vector<double> worker_link;
  std::vector<double> shard_link;
  // Gradients that a shard adds up and applies, in bytes per second; infinity: no limit.
  std::vector<double> shard_processing;
  // What the time of a worker's layers is multiplied by.
  std::vector<double> worker_slowdown;
};

}  // namespace ps

#endif  // PS_EXPERIMENTS_CLUSTER_RATES_H_
