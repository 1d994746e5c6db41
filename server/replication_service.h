#ifndef PS_SERVER_REPLICATION_SERVICE_H_
#define PS_SERVER_REPLICATION_SERVICE_H_

#include "proto/replication.grpc.pb.h"
#include "server/slot_host.h"

namespace ps {

// Translates the Replication RPC into calls of the SlotCopy of the slot that its metadata names.
// Thread-safe.
class ReplicationService final
    : public Replication::WithRawCallbackMethod_Replicate<Replication::Service> {
 public:
  // `host` must outlive the service.
  explicit ReplicationService(const SlotHost* host) : host_(host) {}

 private:
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Replicate(
      grpc::CallbackServerContext* context) override;

  const SlotHost* const host_;
};

}  // namespace ps

#endif  // PS_SERVER_REPLICATION_SERVICE_H_
