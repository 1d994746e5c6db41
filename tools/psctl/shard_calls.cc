#include "tools/psctl/shard_calls.h"

#include <functional>

#include "absl/synchronization/blocking_counter.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"

namespace ps {
namespace {

std::vector<std::string> ShardAddresses(const Config& config) {
  std::vector<std::string> addresses;
  for (int shard = 0; shard < config.shards(); ++shard) addresses.push_back(config.address(shard));
  return addresses;
}

// Calls `start` at every address and waits for all answers.
template <typename Request, typename Response>
std::vector<absl::StatusOr<Response>> CallAll(
    const Config& config, const std::vector<std::string>& addresses, absl::Duration timeout,
    void (Admin::StubInterface::async_interface::*start)(grpc::ClientContext*, const Request*,
                                                         Response*,
                                                         std::function<void(grpc::Status)>)) {
  struct Call {
    std::unique_ptr<Admin::Stub> stub;
    grpc::ClientContext context;
    Response response;
    grpc::Status status;
  };
  const Request request;
  std::vector<Call> calls(addresses.size());
  absl::BlockingCounter pending(static_cast<int>(addresses.size()));
  for (size_t i = 0; i < addresses.size(); ++i) {
    Call& call = calls[i];
    call.stub = Admin::NewStub(CreateChannel(addresses[i], config.proto().limits()));
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
  return CallAll<GetStatsRequest, ShardStats>(config, ShardAddresses(config), timeout,
                                              &Admin::StubInterface::async_interface::GetStats);
}

std::vector<absl::StatusOr<View>> GetViews(const Config& config, absl::Duration timeout) {
  std::vector<std::string> addresses = ShardAddresses(config);
  for (const ShardAddress& spare : config.proto().recovery().spare()) {
    addresses.push_back(spare.address());
  }
  return CallAll<GetViewRequest, View>(config, addresses, timeout,
                                       &Admin::StubInterface::async_interface::GetView);
}

std::vector<absl::Status> ShutDownShards(const Config& config, absl::Duration timeout) {
  std::vector<absl::Status> statuses;
  for (const absl::StatusOr<ShutdownResponse>& result : CallAll<ShutdownRequest, ShutdownResponse>(
           config, ShardAddresses(config), timeout,
           &Admin::StubInterface::async_interface::Shutdown)) {
    statuses.push_back(result.status());
  }
  return statuses;
}

}  // namespace ps
