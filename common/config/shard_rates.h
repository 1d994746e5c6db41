#ifndef EVENSHARD_COMMON_PLACEMENT_SHARD_RATES_H_
#define EVENSHARD_COMMON_PLACEMENT_SHARD_RATES_H_

#include <vector>

#include "proto/config.pb.h"

namespace evenshard {

// Returns the rate of a shard in Gb/s: the smaller of its link_gbps and server_gbps, or 0 if
// neither is given.
double ShardRate(const ShardAddress& shard);

// Returns the shards' rates: one for each shard, or none if no shard has one.
// REQUIRES: the config has been checked.
std::vector<double> ShardRates(const ClusterConfig& config);

// Returns whether plans of this scheme go by the shards' rates. LAYER_BASED and MEMORY_BASED do
// not, because they are the fixed schemes to compare with.
bool UsesShardRates(Partition::Scheme scheme);

// Returns the rates by which the plan is made: ShardRates, or none if the scheme does not use them.
// REQUIRES: the config has been checked.
std::vector<double> PlanRates(const ClusterConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SHARD_RATES_H_
