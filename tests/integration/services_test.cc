// The services beside the exchange, as their usual clients see them.

#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/cluster.h"
#include "worker/training/trainer.h"

namespace evenshard {
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

ShardStats GetStats(const std::string& address) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  ShardStats stats;
  REQUIRE(Admin::NewStub(ChannelTo(address))->GetStats(&context, GetStatsRequest(), &stats).ok());
  return stats;
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
  for (const std::string service :
       {"evenshard.v1.ParameterServer", "evenshard.v1.Admin", "grpc.health.v1.Health"}) {
    CHECK_THAT(reply, Catch::Contains(service));
  }
}

TEST_CASE("the Shutdown RPC asks for shutdown once and is answered") {
  const PlannedConfig config = MustParse(kSmallConfig);
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
  const ShardStats stats = GetStats(cluster.addresses()[1]);
  CHECK(stats.shard() == 1);
  CHECK(stats.incarnation() == cluster.server(1).shard().incarnation());
  CHECK(stats.worker_size() == 2);
}

TEST_CASE("the statistics of shard 0 show a worker's usage while it runs and after it has left") {
  TestCluster cluster(MustParse(kSmallConfig, {R"(
      model={ input { channels: 1 height: 8 width: 8 }
              layer { name: "fc" linear { out_features: 10 } } })",
                                               R"(
      data={ idx { images: "data/digits/images.idx3-ubyte.gz"
                   labels: "data/digits/labels.idx1-ubyte.gz" } })",
                                               "compute={ backend: CPU threads: 1 }"}));
  const RealClock clock;
  const auto trainer = Trainer::Create({.config = &cluster.config(),
                                        .rank = 0,
                                        .clock = &clock,
                                        .addresses = cluster.addresses(),
                                        .progress = {.output = stderr}});
  INFO(trainer.status().ToString());
  REQUIRE(trainer.ok());
  absl::Status outcome = absl::UnknownError("did not run");
  std::thread thread([&] { outcome = (*trainer)->Run().status(); });  // waits for worker 1
  const auto reported = [&] { return GetStats(cluster.addresses()[0]).worker(0); };
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (!reported().has_usage() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  const WorkerStats running = reported();
  const ShardStats elsewhere = GetStats(cluster.addresses()[1]);
  (*trainer)->Stop(absl::CancelledError("stopped by the test"));
  thread.join();

  CHECK(outcome == absl::CancelledError("stopped by the test"));
  CHECK(running.state() == WorkerStats::JOINED);
  CHECK(running.usage().resident_bytes() > 1'000'000);
  CHECK(running.usage().device().empty());
  CHECK(running.usage_seconds_ago() >= 0);
  CHECK_FALSE(elsewhere.worker(0).has_usage());
  CHECK(reported().state() == WorkerStats::LOST);
  CHECK(reported().usage().resident_bytes() > 1'000'000);
}

TEST_CASE("a report of a worker that has not joined is refused") {
  TestCluster cluster(MustParse(kSmallConfig));
  ReportRequest request;
  request.set_worker(1);
  request.set_incarnation(4711);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  ReportResponse response;
  const grpc::Status status = ParameterServer::NewStub(ChannelTo(cluster.addresses()[0]))
                                  ->Report(&context, request, &response);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message() == "worker 1 has not joined with this incarnation");
}

}  // namespace evenshard
