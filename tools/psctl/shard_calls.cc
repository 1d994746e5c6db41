#include "tools/psctl/shard_calls.h"

#include <functional>

#include "absl/synchronization/blocking_counter.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"

namespace ps {
namespace {

// Calls `start` for every shard and waits for all answers.
template <typename Request, typename Response>
std::vector<absl::StatusOr<Response>> CallAll(const Config& config, absl::Duration timeout,
                                              void (Admin::StubInterface::async_interface::*start)(
                                                  grpc::ClientContext*, const Request*, Response*,
                                                  std::function<void(grpc::Status)>)) {
  struct Call {
    std::unique_ptr<Admin::Stub> stub;
    grpc::ClientContext context;
    Response response;
    grpc::Status status;
  };
  const Request request;
  std::vector<Call> calls(config.shards());
  absl::BlockingCounter pending(config.shards());
  for (int shard = 0; shard < config.shards(); ++shard) {
    Call& call = calls[shard];
    call.stub = Admin::NewStub(CreateChannel(config.address(shard), config.proto().limits()));
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    (call.stub->async()->*start)(&call.context, &request, &call.response,
                                 [&call, &pending](grpc::Status status) {
                                   call.status = std::move(status);
                                   pending.DecrementCount();
                                 });
  }
  pending.Wait();
  std::vector<absl::StatusOr<Response>> results;
  for (Call& call : calls) {
    if (call.status.ok()) {
      results.emplace_back(std::move(call.response));
    } else {
      results.emplace_back(FromGrpc(call.status));
    }
  }
  return results;
}

}  // namespace

std::vector<absl::StatusOr<ShardStats>> GetStats(const Config& config, absl::Duration timeout) {
  return CallAll<GetStatsRequest, ShardStats>(config, timeout,
                                              &Admin::StubInterface::async_interface::GetStats);
}

std::vector<absl::Status> ShutDownShards(const Config& config, absl::Duration timeout) {
  std::vector<absl::Status> statuses;
  for (const absl::StatusOr<ShutdownResponse>& result : CallAll<ShutdownRequest, ShutdownResponse>(
           config, timeout, &Admin::StubInterface::async_interface::Shutdown)) {
    statuses.push_back(result.status());
  }
  return statuses;
}

}  // namespace ps
