#ifndef EVENSHARD_SERVER_RPC_PEERS_REPLICATION_SERVICE_H_
#define EVENSHARD_SERVER_RPC_PEERS_REPLICATION_SERVICE_H_

#include <set>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/net/raw_call.h"
#include "proto/config.pb.h"
#include "proto/replication.grpc.pb.h"
#include "server/recovery/slot_host.h"

namespace evenshard {

// Translates the Replication RPC into calls of the SlotReplica of the slot that its metadata names.
// A stream is taken only from the process that is the slot's primary, as far as its certificate
// says who it is. Thread-safe.
class ReplicationService final
    : public Replication::WithRawCallbackMethod_Replicate<Replication::Service> {
 public:
  // Both must outlive the service.
  ReplicationService(const SlotHost* host, const Security* security)
      : host_(host), security_(security) {}

  // Ends every open stream with `status`.
  void EndStreams(const absl::Status& status);

 private:
  class Receiver;

  BidiReactor* Replicate(CallContext* context) override;
  // Errors: INVALID_ARGUMENT for wrong metadata; UNAVAILABLE without the replica, or in another
  // view; those of CheckCaller.
  absl::StatusOr<Receiver*> NewReceiver(const CallContext& context);

  const SlotHost* const host_;
  const Security* const security_;
  absl::Mutex mutex_;
  std::set<Receiver*> receivers_ ABSL_GUARDED_BY(mutex_);  // whose RPCs are not done
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PEERS_REPLICATION_SERVICE_H_
