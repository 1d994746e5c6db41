#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_CLUSTER_RATES_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_CLUSTER_RATES_H_

#include <optional>
#include <vector>

#include "common/placement/simulator/network/framing.h"
#include "proto/config.pb.h"

namespace evenshard {

// The speeds of a cluster's machines. A link has its rate in both directions at the same time.
struct ClusterRates {
  // Payload in bytes per second, but see ConfiguredRates.
  std::vector<double> worker_link;  // by rank
  std::vector<double> shard_link;   // by shard
  // Bytes of gradients per second that each shard adds up and applies; infinity: no limit.
  std::vector<double> shard_processing;
  // A factor for the layer times of each worker.
  std::vector<double> worker_slowdown;
  // How long a message takes to arrive after it has passed the links, and to be taken up.
  double latency_seconds = 0;
};

// Returns the speeds that the config states, with the rates of links still in 10^9 bits per second.
// If `link_gbps` is given, all links have this rate. Otherwise a link without a rate is as fast as
// the fastest shard's, or has 10. With ClusterConfig.colocated, shard I and worker I have one link,
// of the shard's rate if the config gives that, otherwise of the worker's. REQUIRES: the config has
// been checked.
ClusterRates ConfiguredRates(const ClusterConfig& config,
                             std::optional<double> link_gbps = std::nullopt);

// Converts the rates of links from 10^9 bits per second to payload in bytes per second.
void ConvertLinks(const Framing& framing, ClusterRates* rates);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_CLUSTER_RATES_H_
