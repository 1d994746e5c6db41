#ifndef EVENSHARD_SERVER_RPC_PEERS_REPLICA_CLIENT_H_
#define EVENSHARD_SERVER_RPC_PEERS_REPLICA_CLIENT_H_

#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"
#include "proto/config.pb.h"
#include "server/recovery/replica.h"

namespace evenshard {

// Opens streams to replicas by the Replication service, each lane's on a connection of its own.
// Between hosts it stays from view to view: at a start views follow each other before all lanes
// have connected, and gRPC 1.51 never closes a connection whose channel ends before the other end's
// first words. Thread-safe.
class ReplicaClient final : public ReplicaTransport {
 public:
  // `config` must outlive the client.
  explicit ReplicaClient(const ClusterConfig* config) : config_(*config) {}

  std::unique_ptr<ReplicaStream> Open(int slot, int lane, uint64_t view, const ProcessId& primary,
                                      const ProcessId& copy,
                                      ReplicaStream::Receiver* receiver) override;
  void Disconnect(int slot) override;

 private:
  std::shared_ptr<grpc::Channel> ChannelTo(int slot, int lane, const ProcessId& copy);

  const ClusterConfig& config_;

  absl::Mutex mutex_;
  // By slot and lane.
  std::map<std::pair<int, int>, std::shared_ptr<grpc::Channel>> channels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_REPLICA_CLIENT_H_
