#ifndef PS_COMMON_SIMULATOR_CLUSTER_RATES_H_
#define PS_COMMON_SIMULATOR_CLUSTER_RATES_H_

#include <vector>

namespace ps {

// The speeds of a cluster's machines. A link has its rate in both directions at the same time.
struct ClusterRates {
  // Payload in bytes per second.
  std::vector<double> worker_link;  // by rank
  std::vector<double> shard_link;   // by shard
  // Bytes of gradients per second that each shard adds up and applies; infinity: no limit.
  std::vector<double> shard_processing;
  // A factor for the layer times of each worker.
  std::vector<double> worker_slowdown;
};

}  // namespace ps

#endif  // PS_COMMON_SIMULATOR_CLUSTER_RATES_H_
