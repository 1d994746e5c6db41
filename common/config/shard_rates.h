#ifndef PS_COMMON_CONFIG_SHARD_RATES_H_
#define PS_COMMON_CONFIG_SHARD_RATES_H_

#include <vector>

#include "proto/config.pb.h"

namespace ps {

// Returns the rate of a shard in Gb/s: the smaller of its link_gbps and server_gbps, or 0 if
// neither is given.
double ShardRate(const ShardAddress& shard);

// Returns the rates for AUTO partitioning: one for each shard, or none if no shard has one.
// REQUIRES: the config has been checked.
std::vector<double> ShardRates(const ClusterConfig& config);

}  // namespace ps

#endif  // PS_COMMON_CONFIG_SHARD_RATES_H_
