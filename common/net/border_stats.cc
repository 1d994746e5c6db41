#include "common/net/border_stats.h"

namespace evenshard {

ShardStats::Protection ProtectionOf(const ClusterConfig& config) {
  const Security& security = config.security();
  return !security.certificate().empty() ? ShardStats::MTLS
         : security.insecure()           ? ShardStats::INSECURE
                                         : ShardStats::OF_HOST;
}

ShardStats::Connections ConnectionStats(const ConnectionGate::Counts& counts,
                                        const ClusterConfig& config) {
  ShardStats::Connections connections;
  connections.set_open(counts.open);
  connections.set_unproven(counts.unknown);
  connections.set_accepted(counts.accepted);
  connections.set_turned_away(counts.turned_away);
  connections.set_pushed_out(counts.pushed_out);
  connections.set_timed_out(counts.timed_out);
  connections.set_readers(counts.readers);
  connections.set_loud(counts.loud);
  *connections.mutable_limits() = StrangersOf(config);
  return connections;
}

}  // namespace evenshard
