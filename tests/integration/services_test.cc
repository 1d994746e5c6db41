// The services beside the exchange, as their usual clients see them.

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"
#include "tests/testing/cluster.h"

namespace ps {
namespace {

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

// The first answer of a service whose messages this project has no code for.
std::string Call(const std::string& address, const std::string& method,
                 const std::string& request) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(ChannelTo(address));
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub.PrepareCall(&context, method, &queue);
  stream->StartCall(nullptr);
  REQUIRE(await());
  const grpc::Slice bytes(request);
  stream->Write(grpc::ByteBuffer(&bytes, 1), nullptr);
  REQUIRE(await());
  grpc::ByteBuffer reply;
  stream->Read(&reply, nullptr);
  REQUIRE(await());
  grpc::Slice whole;
  REQUIRE(reply.DumpToSingleSlice(&whole).ok());
  context.TryCancel();
  grpc::Status status;
  stream->Finish(&status, nullptr);
  await();
  return std::string(reinterpret_cast<const char*>(whole.begin()), whole.size());
}

}  // namespace

TEST_CASE("a shard answers grpc.health.v1 with SERVING") {
  TestCluster cluster(MustParse(kSmallConfig));
  // HealthCheckResponse{status: SERVING}, for the server as a whole.
  CHECK(Call(cluster.addresses()[0], "/grpc.health.v1.Health/Check", "") == "\x08\x01");
}

TEST_CASE("a shard lists its services by reflection") {
  TestCluster cluster(MustParse(kSmallConfig));
  // ServerReflectionRequest{list_services: "*"}
  const std::string reply =
      Call(cluster.addresses()[0], "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
           "\x3a\x01*");
  for (const std::string service : {"ps.ParameterServer", "ps.Admin", "grpc.health.v1.Health"}) {
    CHECK_THAT(reply, Catch::Contains(service));
  }
}

TEST_CASE("the Shutdown RPC asks for shutdown once and is answered") {
  const Config config = MustParse(kSmallConfig);
  const RealClock clock;
  std::atomic<int> requests{0};
  auto server = Server::Start(
      {.config = &config, .shard = 0, .clock = &clock, .request_shutdown = [&] { ++requests; }});
  REQUIRE(server.ok());
  grpc::ClientContext context;
  ShutdownResponse response;
  CHECK(Admin::NewStub(ChannelTo((*server)->address()))
            ->Shutdown(&context, ShutdownRequest(), &response)
            .ok());
  CHECK(requests == 1);
}

TEST_CASE("GetStats answers over RPC with what the shard counted") {
  TestCluster cluster(MustParse(kSmallConfig));
  grpc::ClientContext context;
  ShardStats stats;
  REQUIRE(Admin::NewStub(ChannelTo(cluster.addresses()[1]))
              ->GetStats(&context, GetStatsRequest(), &stats)
              .ok());
  CHECK(stats.shard() == 1);
  CHECK(stats.incarnation() == cluster.server(1).shard().incarnation());
  CHECK(stats.worker_size() == 2);
}

}  // namespace ps
