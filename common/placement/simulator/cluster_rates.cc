#include "common/placement/simulator/cluster_rates.h"

#include <algorithm>
#include <limits>

#include "common/placement/plan/device_profile.h"

namespace evenshard {
namespace {

constexpr double kDefaultGbps = 10;
constexpr double kBytesPerGigabit = 1e9 / 8;

}  // namespace

ClusterRates ConfiguredRates(const ClusterConfig& config, std::optional<double> link_gbps) {
  ClusterRates rates;
  double fastest = 0;
  for (const ShardAddress& shard : config.shard()) fastest = std::max(fastest, shard.link_gbps());
  const double default_gbps = link_gbps.value_or(fastest > 0 ? fastest : kDefaultGbps);
  const bool has_worker_link = config.has_worker_link_gbps() && !link_gbps;
  const double worker_gbps = has_worker_link ? config.worker_link_gbps() : default_gbps;
  for (int rank = 0; rank < config.workers(); ++rank) {
    rates.worker_link.push_back(worker_gbps);
    rates.worker_slowdown.push_back(WorkerSlowdown(EmulatedDeviceOf(config.compute()), rank));
  }
  for (int i = 0; i < config.shard_size(); ++i) {
    const ShardAddress& shard = config.shard(i);
    const bool has_link = shard.has_link_gbps() && !link_gbps;
    const double other_gbps = config.colocated() ? worker_gbps : default_gbps;
    rates.shard_link.push_back(has_link ? shard.link_gbps() : other_gbps);
    if (config.colocated()) rates.worker_link[i] = rates.shard_link[i];
    rates.shard_processing.push_back(shard.has_server_gbps()
                                         ? shard.server_gbps() * kBytesPerGigabit
                                         : std::numeric_limits<double>::infinity());
  }
  return rates;
}

void ConvertLinks(const Framing& framing, ClusterRates* rates) {
  for (double& rate : rates->worker_link) rate = PayloadBytesPerSecond(rate, framing);
  for (double& rate : rates->shard_link) rate = PayloadBytesPerSecond(rate, framing);
}

}  // namespace evenshard
