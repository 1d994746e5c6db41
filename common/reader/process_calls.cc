#include "common/reader/process_calls.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/channel_options.h"
#include "common/net/status_conversion.h"
#include "common/net/unix_socket.h"
#include "common/security/tls_files.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"
#include "proto/ring.grpc.pb.h"

namespace evenshard {
namespace {

// How long a process that is well may take to say which view it follows, when others have said it.
constexpr absl::Duration kSoon = absl::Milliseconds(500);

template <typename Service, typename Request, typename Response>
using Start = void (Service::StubInterface::async_interface::*)(grpc::ClientContext*,
                                                                const Request*, Response*,
                                                                std::function<void(grpc::Status)>);

// Calls `start` at every address, where a process of `role` is, with the request at the same index,
// and waits for all answers. An address that is an error is the answer itself.
template <typename Service, typename Request, typename Response>
std::vector<absl::StatusOr<Response>> CallAll(
    const Config& config, Role role, const std::vector<absl::StatusOr<std::string>>& addresses,
    const std::vector<Request>& requests, absl::Duration timeout, const std::stop_token& stop,
    Start<Service, Request, Response> start) {
  struct Call {
    std::unique_ptr<typename Service::Stub> stub;
    grpc::ClientContext context;
    Response response;
    absl::Status status;
  };
  std::vector<Call> calls(addresses.size());
  absl::BlockingCounter pending(static_cast<int>(addresses.size()));
  for (size_t i = 0; i < addresses.size(); ++i) {
    Call& call = calls[i];
    call.status = addresses[i].ok() ? CheckUnixPeer(*addresses[i]) : addresses[i].status();
    if (!call.status.ok()) {
      pending.DecrementCount();
      continue;
    }
    call.stub = Service::NewStub(CreateChannel(*addresses[i], config.proto(), {.role = role}));
    call.context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    (call.stub->async()->*start)(&call.context, &requests[i], &call.response,
                                 [&call, &pending](const grpc::Status& status) {
                                   call.status = FromGrpc(status);
                                   pending.DecrementCount();
                                 });
  }
  const std::stop_callback cancel(stop, [&calls] {
    for (Call& call : calls) call.context.TryCancel();
  });
  pending.Wait();
  std::vector<absl::StatusOr<Response>> results;
  for (size_t i = 0; i < addresses.size(); ++i) {
    Call& call = calls[i];
    if (call.status.ok()) {
      results.emplace_back(std::move(call.response));
    } else {
      results.emplace_back(call.status);
    }
  }
  return results;
}

// Calls `start` at every ps process.
template <typename Request, typename Response>
std::vector<absl::StatusOr<Response>> CallProcesses(const Config& config, absl::Duration timeout,
                                                    const std::stop_token& stop,
                                                    Start<Admin, Request, Response> start) {
  const std::vector<std::string> addresses = ProcessAddresses(config);
  return CallAll<Admin, Request, Response>(
      config, Role::kShard, {addresses.begin(), addresses.end()},
      std::vector<Request>(addresses.size()), timeout, stop, start);
}

}  // namespace

std::vector<std::string> ProcessAddresses(const Config& config) {
  std::vector<std::string> addresses;
  for (int shard = 0; shard < config.shards(); ++shard) addresses.push_back(config.address(shard));
  for (const ShardAddress& spare : config.proto().recovery().spare()) {
    addresses.push_back(spare.address());
  }
  return addresses;
}

std::vector<absl::StatusOr<View>> GetViews(const Config& config, absl::Duration timeout,
                                           const std::stop_token& stop) {
  return CallProcesses<GetViewRequest, View>(config, timeout, stop,
                                             &Admin::StubInterface::async_interface::GetView);
}

const View* NewestView(absl::Span<const absl::StatusOr<View>> views) {
  const View* newest = nullptr;
  for (const absl::StatusOr<View>& view : views) {
    if (view.ok() && (newest == nullptr || view->number() > newest->number())) newest = &*view;
  }
  return newest;
}

std::vector<absl::StatusOr<std::string>> PrimariesIn(const Config& config,
                                                     absl::Span<const absl::StatusOr<View>> views) {
  std::vector<absl::StatusOr<std::string>> addresses;
  for (int slot = 0; slot < config.shards(); ++slot) addresses.emplace_back(config.address(slot));
  const View* newest = NewestView(views);
  if (newest == nullptr || newest->number() == 0) return addresses;
  for (int slot = 0; slot < config.shards(); ++slot) {
    if (slot < newest->slot_size() && newest->slot(slot).has_primary()) {
      addresses[slot] = Printable(newest->slot(slot).primary().address());
    } else {
      addresses[slot] = absl::UnavailableError(
          absl::StrCat("no process is primary of slot ", slot, " (view ", newest->number(), ")"));
    }
  }
  return addresses;
}

std::vector<absl::StatusOr<std::string>> PrimaryAddresses(const Config& config,
                                                          absl::Duration timeout,
                                                          const std::stop_token& stop) {
  if (!config.proto().has_recovery()) return PrimariesIn(config, {});
  // A host that is gone does not even refuse, and the others know where its slot is.
  const absl::Duration soon = std::min(timeout, kSoon);
  std::vector<absl::StatusOr<View>> views = GetViews(config, soon, stop);
  if (NewestView(views) == nullptr && timeout > soon) {
    views = GetViews(config, timeout - soon, stop);
  }
  return PrimariesIn(config, views);
}

std::vector<absl::StatusOr<ShardStats>> GetStats(
    const Config& config, const std::vector<absl::StatusOr<std::string>>& primaries,
    absl::Duration timeout, const std::stop_token& stop) {
  std::vector<GetStatsRequest> requests(primaries.size());
  for (size_t slot = 0; slot < requests.size(); ++slot) {
    requests[slot].set_slot(static_cast<uint32_t>(slot));
  }
  return CallAll<Admin, GetStatsRequest, ShardStats>(
      config, Role::kShard, primaries, requests, timeout, stop,
      &Admin::StubInterface::async_interface::GetStats);
}

std::vector<absl::StatusOr<RingStats>> GetRingStats(const Config& config, absl::Duration timeout,
                                                    const std::stop_token& stop) {
  const auto& addresses = config.proto().ring().address();
  return CallAll<Ring, RingStatsRequest, RingStats>(
      config, Role::kWorker, {addresses.begin(), addresses.end()},
      std::vector<RingStatsRequest>(addresses.size()), timeout, stop,
      &Ring::StubInterface::async_interface::GetStats);
}

absl::StatusOr<PlannedConfig> WithModel(const PlannedConfig& config, absl::Duration timeout,
                                        const std::stop_token& stop) {
  if (config.has_model()) return config;
  RETURN_IF_ERROR(CheckSecurity(config.proto()));
  std::string why;
  for (const absl::StatusOr<Declaration>& declaration :
       CallProcesses<GetDeclarationRequest, Declaration>(
           config, timeout, stop, &Admin::StubInterface::async_interface::GetDeclaration)) {
    if (declaration.ok()) return config.Declared(*declaration);
    why = std::string(declaration.status().message());
  }
  const absl::Status problem = config.FieldError(
      "model.from_workers",
      absl::StrCat("has no tensors, and no ps of the run knows the workers' model (", why,
                   "), allowed: a run whose workers have joined, or the tensors in the config"));
  return absl::UnavailableError(problem.message());
}

absl::StatusOr<PlannedConfig> LoadWithModel(const std::string& path,
                                            absl::Span<const std::string> overrides,
                                            absl::Duration timeout) {
  ASSIGN_OR_RETURN(const PlannedConfig config, PlannedConfig::Load(path, overrides));
  return WithModel(config, timeout);
}

std::vector<absl::Status> ShutDownProcesses(const Config& config, absl::Duration timeout) {
  std::vector<absl::Status> statuses;
  for (const absl::StatusOr<ShutdownResponse>& result :
       CallProcesses<ShutdownRequest, ShutdownResponse>(
           config, timeout, /*stop=*/{}, &Admin::StubInterface::async_interface::Shutdown)) {
    statuses.push_back(result.status());
  }
  return statuses;
}

}  // namespace evenshard
