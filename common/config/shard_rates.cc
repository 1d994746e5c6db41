#include "common/config/shard_rates.h"

#include <algorithm>

namespace evenshard {

double ShardRate(const ShardAddress& shard) {
  if (shard.link_gbps() == 0) return shard.server_gbps();
  if (shard.server_gbps() == 0) return shard.link_gbps();
  return std::min(shard.link_gbps(), shard.server_gbps());
}

std::vector<double> ShardRates(const ClusterConfig& config) {
  std::vector<double> rates;
  for (const ShardAddress& shard : config.shard()) {
    if (const double rate = ShardRate(shard); rate > 0) rates.push_back(rate);
  }
  return rates;
}

bool UsesShardRates(Partition::Scheme scheme) {
  return scheme == Partition::STRIPED || scheme == Partition::AUTO;
}

std::vector<double> PlanRates(const ClusterConfig& config) {
  if (!UsesShardRates(config.partition().scheme())) return {};
  return ShardRates(config);
}

}  // namespace evenshard
