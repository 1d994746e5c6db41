#ifndef EVENSHARD_COMMON_NET_BORDER_STATS_H_
#define EVENSHARD_COMMON_NET_BORDER_STATS_H_

#include "common/net/connection_gate.h"
#include "common/net/listener.h"
#include "common/security/refusal_log.h"
#include "proto/admin.pb.h"
#include "proto/config.pb.h"

namespace evenshard {

// How a process of `config` knows who calls it.
ShardStats::Protection ProtectionOf(const ClusterConfig& config);

ShardStats::Connections ConnectionStats(const ConnectionGate::Counts& counts,
                                        const ClusterConfig& config);

// Fills in what a process that listens with `listener` knows about those who come to it. `Stats`:
// ShardStats or RingStats. Without a listener yet, there is nothing about connections.
template <typename Stats>
void FillBorder(const Listener* listener, const ClusterConfig& config, Stats* stats) {
  stats->set_protection(ProtectionOf(config));
  stats->set_refusals(Refusals());
  if (listener == nullptr) return;
  *stats->mutable_connections() = ConnectionStats(listener->connections(), config);
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_BORDER_STATS_H_
