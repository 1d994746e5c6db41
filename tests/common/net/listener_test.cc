#include "common/net/listener.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/client_callback.h"
#include "proto/admin.grpc.pb.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

class Service final : public Admin::CallbackService {
 private:
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const GetStatsRequest*,
                                     ShardStats*) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

std::unique_ptr<Listener> Start(const std::string& address, Service* service) {
  grpc::ServerBuilder builder;
  builder.RegisterService(service);
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Start(&builder, address, ClusterConfig(), "the test");
  REQUIRE(listener.ok());
  return *std::move(listener);
}

grpc::StatusCode Call(const std::shared_ptr<grpc::Channel>& channel, const char* method) {
  const std::unique_ptr<Admin::Stub> stub = Admin::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(20)));
  ShardStats stats;
  if (std::string(method) == "GetStats") {
    return stub->GetStats(&context, GetStatsRequest(), &stats).error_code();
  }
  ShutdownResponse response;
  return stub->Shutdown(&context, ShutdownRequest(), &response).error_code();
}

TEST_CASE("a connection is known by its first call, at every kind of address") {
  const ScratchFolder folder;
  Service service;
  for (const std::string host : {"127.0.0.1:0", "[::1]:0"}) {
    CAPTURE(host);
    const std::unique_ptr<Listener> listener = Start(host, &service);
    const std::string target = absl::StrCat(host.substr(0, host.rfind(':')), ":", listener->port());
    const auto channel = grpc::CreateChannel(target, grpc::InsecureChannelCredentials());
    CHECK(Call(channel, "GetStats") == grpc::StatusCode::OK);
    CHECK(listener->connections().open == 1);
    CHECK(listener->connections().unknown == 0);
    listener->Shutdown(absl::Now());
  }
  const std::string path = absl::StrCat("unix:", folder.Path("socket"));
  const std::unique_ptr<Listener> listener = Start(path, &service);
  CHECK(listener->port() == 0);
  const auto channel = grpc::CreateChannel(path, grpc::InsecureChannelCredentials());
  CHECK(Call(channel, "GetStats") == grpc::StatusCode::OK);
  listener->Shutdown(absl::Now());
}

TEST_CASE("a method that nobody offers is said not to be there") {
  class Nothing final : public grpc::Service {};
  Nothing nothing;
  grpc::ServerBuilder builder;
  builder.RegisterService(&nothing);
  const absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Start(&builder, "127.0.0.1:0", ClusterConfig(), "the test");
  REQUIRE(listener.ok());
  const auto channel = grpc::CreateChannel(absl::StrCat("127.0.0.1:", (*listener)->port()),
                                           grpc::InsecureChannelCredentials());
  for (int i = 0; i < 3; ++i) {
    CHECK(Call(channel, "Shutdown") == grpc::StatusCode::UNIMPLEMENTED);
  }
  CHECK((*listener)->connections().open == 1);
  (*listener)->Shutdown(absl::Now());
}

TEST_CASE("a listener on TCP needs two files for each connection, and some for strangers") {
  ClusterConfig config;
  config.mutable_limits()->mutable_strangers()->set_handshakes(5);
  CHECK(Listener::FilesFor(100, "unix:/x", config) == 100);
  CHECK(Listener::FilesFor(100, "127.0.0.1:1", config) == 210);
}

}  // namespace
}  // namespace evenshard
