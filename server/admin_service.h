#ifndef PS_SERVER_ADMIN_SERVICE_H_
#define PS_SERVER_ADMIN_SERVICE_H_

#include <functional>

#include "proto/admin.grpc.pb.h"
#include "server/shard.h"

namespace ps {

// Translates the Admin RPCs into calls of a Shard. Its methods are raw for the reason given at
// AnswerUnary. Thread-safe.
class AdminService final : public Admin::WithRawCallbackMethod_GetStats<
                               Admin::WithRawCallbackMethod_Shutdown<Admin::Service>> {
 public:
  // `shard` must outlive the service. `request_shutdown` must not block.
  AdminService(const Shard* shard, std::function<void()> request_shutdown)
      : shard_(shard), request_shutdown_(std::move(request_shutdown)) {}

 private:
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

  const Shard* const shard_;
  const std::function<void()> request_shutdown_;
};

}  // namespace ps

#endif  // PS_SERVER_ADMIN_SERVICE_H_
