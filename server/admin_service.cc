#include "server/admin_service.h"

#include "spdlog/spdlog.h"

namespace ps {

grpc::ServerUnaryReactor* AdminService::GetStats(grpc::CallbackServerContext* context,
                                                 const GetStatsRequest*, ShardStats* response) {
  *response = shard_->Stats();
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* AdminService::Shutdown(grpc::CallbackServerContext* context,
                                                 const ShutdownRequest*, ShutdownResponse*) {
  spdlog::info("{} asks for shutdown", context->peer());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  request_shutdown_();
  return reactor;
}

}  // namespace ps
