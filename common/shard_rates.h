#ifndef PS_COMMON_SHARD_RATES_H_
#define PS_COMMON_SHARD_RATES_H_

#include <vector>

#include "proto/config.pb.h"

namespace ps {

// The rate of a shard in Gb/s, the slower of its link_gbps and server_gbps; 0 where neither
// is given.
double ShardRate(const ShardAddress& shard);

// The rates that AUTO partitioning goes by, one for each shard; empty where no shard has one.
// REQUIRES: a checked config.
std::vector<double> ShardRates(const ClusterConfig& config);

}  // namespace ps

#endif  // PS_COMMON_SHARD_RATES_H_
