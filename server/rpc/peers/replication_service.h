#ifndef EVENSHARD_SERVER_RPC_PEERS_REPLICATION_SERVICE_H_
#define EVENSHARD_SERVER_RPC_PEERS_REPLICATION_SERVICE_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/raw_call.h"
#include "proto/replication.grpc.pb.h"
#include "server/recovery/slot_host.h"

namespace evenshard {

// Translates the Replication RPC into calls of the SlotReplica of the slot that its metadata names.
// Thread-safe.
class ReplicationService final
    : public Replication::WithRawCallbackMethod_Replicate<Replication::Service> {
 public:
  // `host` must outlive the service.
  explicit ReplicationService(const SlotHost* host) : host_(host) {}

  // Ends every open stream with `status`.
  void EndStreams(const absl::Status& status);

 private:
  class Receiver;

  BidiReactor* Replicate(CallContext* context) override;
  // Errors: INVALID_ARGUMENT for wrong metadata; UNAVAILABLE without the replica.
  absl::StatusOr<Receiver*> NewReceiver(const CallContext& context);

  const SlotHost* const host_;
  absl::Mutex mutex_;
  std::set<Receiver*> receivers_ ABSL_GUARDED_BY(mutex_);  // whose RPCs are not done
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_REPLICATION_SERVICE_H_
