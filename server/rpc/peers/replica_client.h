#ifndef EVENSHARD_SERVER_RPC_PEERS_REPLICA_CLIENT_H_
#define EVENSHARD_SERVER_RPC_PEERS_REPLICA_CLIENT_H_

#include <memory>

#include "proto/config.pb.h"
#include "server/recovery/replica.h"

namespace evenshard {

// Opens streams to replicas by the Replication service, each on a connection of its own.
// Thread-safe.
class ReplicaClient final : public ReplicaTransport {
 public:
  // `config` must outlive the client.
  explicit ReplicaClient(const ClusterConfig* config) : config_(*config) {}

  std::unique_ptr<ReplicaStream> Open(int slot, uint64_t view, const ProcessId& primary,
                                      const ProcessId& copy,
                                      ReplicaStream::Receiver* receiver) override;

 private:
  const ClusterConfig& config_;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_REPLICA_CLIENT_H_
