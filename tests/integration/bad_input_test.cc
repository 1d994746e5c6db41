// What a shard and the other workers do when somebody misbehaves: over real gRPC
// connections, with generated stubs where a well-behaved Exchange would not do it.

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/wire/chunk_codec.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/rpc/declaration_wait.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/testing/chunk_messages.h"
#include "tests/testing/cluster.h"
#include "tests/testing/raw_worker.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Under ASYNC, what one worker does wrong must not stop another.
PlannedConfig AsyncConfig() { return MustParse(kSmallConfig, {"update.policy=ASYNC"}); }

// Worker 1 trains on as if nothing had happened.
void RequireOthersUnharmed(TestCluster& cluster, const std::vector<float>& before) {
  REQUIRE(cluster.Parameters() == before);
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = cluster.Connect(1);
  INFO(exchange.status().ToString());
  REQUIRE(exchange.ok());
  std::vector<float> parameters(cluster.config().model().buffer_size());
  REQUIRE((*exchange)->Pull(absl::MakeSpan(parameters)).ok());
  REQUIRE(
      (*exchange)
          ->PushPull(0, TestGradient(cluster.config().model(), 1, 0), absl::MakeSpan(parameters))
          .ok());
  REQUIRE((*exchange)->Leave(absl::OkStatus()).ok());
  REQUIRE(parameters == cluster.Parameters());
}

}  // namespace

TEST_CASE("a stream of a worker that has not joined is refused") {
  TestCluster cluster(AsyncConfig());
  const std::vector<float> before = cluster.Parameters();
  RawWorker worker(cluster, 0, /*joins=*/false);
  const grpc::Status status = worker.Refused();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(status.error_message(), Contains("worker 0 has not joined"));
  RequireOthersUnharmed(cluster, before);
}

TEST_CASE("a gradient of wrong length or unknown id ends only its stream") {
  TestCluster cluster(AsyncConfig());
  const std::vector<float> before = cluster.Parameters();
  {
    RawWorker worker(cluster, 0);
    worker.chunk().mutable_data()->resize(100);
    worker.Send();
    const grpc::Status status = worker.Refused();
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK_THAT(status.error_message(), Contains("100 bytes for chunk 0, which takes 1024"));
  }
  {
    RawWorker worker(cluster, 0);
    worker.chunk().set_chunk(1'000'000);
    worker.Send();
    CHECK_THAT(worker.Refused().error_message(),
               Contains("chunk 1000000, which shard 0 does not own"));
  }
  RequireOthersUnharmed(cluster, before);
}

TEST_CASE("a push in another worker's name is refused") {
  TestCluster cluster(AsyncConfig());
  RawWorker worker(cluster, 0);
  worker.Send();
  ParameterChunk reply;
  REQUIRE(worker.Receive(&reply));
  CHECK(reply.version() == 1);
  worker.chunk().set_worker(1);
  worker.Send();
  CHECK_THAT(worker.Refused().error_message(),
             Contains("worker 1 pushed on the stream of worker 0"));
}

TEST_CASE("a message over the limit is refused") {
  TestCluster cluster(AsyncConfig());
  const std::vector<float> before = cluster.Parameters();
  RawWorker worker(cluster, 0);
  worker.chunk().mutable_data()->resize(8 << 20);
  worker.Send();
  CHECK(worker.Refused().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  RequireOthersUnharmed(cluster, before);
}

TEST_CASE("bytes that are not a message are refused") {
  TestCluster cluster(AsyncConfig());
  const std::vector<float> before = cluster.Parameters();
  REQUIRE(cluster.server(0).shard().Join(cluster.RequestToJoin(0, 4711), "test").ok());
  grpc::ClientContext context;
  context.AddMetadata("ps-worker", "0");
  context.AddMetadata("ps-incarnation", "4711");
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(
      grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()));
  const auto stream = stub.PrepareCall(&context, "/evenshard.v1.ParameterServer/Exchange", &queue);
  const auto next_ok = [&] {
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue.Next(&tag, &ok));
    return ok;
  };
  stream->StartCall(nullptr);
  REQUIRE(next_ok());
  const grpc::Slice garbage(std::string("\x7a\xff\xff\xff\xff\x0f", 6));
  stream->Write(grpc::ByteBuffer(&garbage, 1), nullptr);
  REQUIRE(next_ok());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  REQUIRE(next_ok());
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(status.error_message(), Contains("malformed chunk message"));
  RequireOthersUnharmed(cluster, before);
}

TEST_CASE("metadata that are no numbers are refused, and name no other worker") {
  TestCluster cluster(AsyncConfig());
  const std::vector<float> before = cluster.Parameters();
  REQUIRE(cluster.server(0).shard().Join(cluster.RequestToJoin(0, 4711), "test").ok());
  const auto stub = ParameterServer::NewStub(
      grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()));
  const auto refusal = [&](const std::vector<std::pair<std::string, std::string>>& metadata) {
    grpc::ClientContext context;
    for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
    const auto stream = stub->Exchange(&context);
    GradientChunk chunk;
    chunk.set_incarnation(4711);
    chunk.set_data(std::string(256 * sizeof(float), '\0'));
    stream->Write(MessageOf(chunk));
    ParameterChunks replies;
    CHECK_FALSE(stream->Read(&replies));
    const grpc::Status status = stream->Finish();
    CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    return status.error_message();
  };
  for (const std::string bad : {"x", "-1", "", "1x", "4294967296"}) {
    CHECK_THAT(refusal({{"ps-worker", bad}, {"ps-incarnation", "4711"}}),
               Contains("ps-worker is \"" + bad + "\", allowed: a decimal number of 32 bits"));
  }
  CHECK_THAT(refusal({{"ps-incarnation", "4711"}}), Contains("lack ps-worker"));
  CHECK_THAT(refusal({{"ps-worker", "0"}, {"ps-incarnation", "0x1267"}}),
             Contains("ps-incarnation is \"0x1267\""));
  CHECK_THAT(refusal({{"ps-worker", "0"}, {"ps-incarnation", "4711"}, {"ps-join-follows", "yes"}}),
             Contains("ps-join-follows is \"yes\""));
  CHECK_THAT(refusal({{"ps-worker", "0"}, {"ps-incarnation", "4711"}, {"ps-slot", "one"}}),
             Contains("ps-slot is \"one\""));
  RequireOthersUnharmed(cluster, before);
}

TEST_CASE("a stream that is half-closed before its replies have come ends with an error") {
  TestCluster cluster(MustParse(kSmallConfig, {"update.policy=SYNC"}));
  RawWorker worker(cluster, 0);
  worker.Send();  // answered when the others have pushed, too
  worker.HalfClose();
  const grpc::Status status = worker.Refused();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(status.error_message(), Contains("half-closed the stream before 1 chunks were"));
}

TEST_CASE("a stream that is half-closed after its replies ends well") {
  TestCluster cluster(AsyncConfig());
  RawWorker worker(cluster, 0);
  worker.Send();
  ParameterChunk reply;
  REQUIRE(worker.Receive(&reply));
  worker.Send();  // a repeat
  REQUIRE(worker.Receive(&reply));
  worker.HalfClose();
  CHECK(worker.Refused().ok());
}

TEST_CASE("a unary request that is not a message is refused and changes nothing") {
  TestCluster cluster(AsyncConfig());
  const std::vector<float> before = cluster.Parameters();
  const std::string method =
      GENERATE("ParameterServer/Join", "ParameterServer/Leave", "ParameterServer/Report",
               "ParameterServer/Pull", "Admin/GetStats", "Admin/Shutdown");
  const std::string bytes = GENERATE("\xff", "\x0a\x7f", "\x0f");  // cut, too long, no wire type
  CAPTURE(method, bytes);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(
      grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()));
  const grpc::Slice garbage(bytes);
  const auto call = stub.PrepareUnaryCall(&context, "/evenshard.v1." + method,
                                          grpc::ByteBuffer(&garbage, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  REQUIRE(queue.Next(&tag, &ok));
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(status.error_message(), Contains("malformed ") && Contains("Request"));
  RequireOthersUnharmed(cluster, before);
}

TEST_CASE("a worker's texts can neither forge lines in the shard's log nor fill it") {
  std::ostringstream log;
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "ps", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  const absl::Cleanup restore = [&] { spdlog::set_default_logger(before); };
  {
    TestCluster cluster(MustParse(kSmallConfig));
    const auto stub = ParameterServer::NewStub(
        grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()));
    JoinRequest join;  // with another config, which is long and whose strings end lines
    join.set_plan_version(kPlanVersion);
    join.set_protocol_version(kProtocolVersion);
    join.set_incarnation(4711);
    for (int i = 0; i < 2000; ++i) join.mutable_config()->add_shard()->set_address("a\n\x1b[2Jb");
    JoinResponse joined;
    const auto call = [&](const auto& method, const auto& request, auto* response) {
      grpc::ClientContext context;
      return (stub.get()->*method)(&context, request, response);
    };
    const grpc::Status refused = call(&ParameterServer::Stub::Join, join, &joined);
    CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(refused.error_message().size() < 2500);
    for (int i = 0; i < 20; ++i) {
      CHECK_FALSE(call(&ParameterServer::Stub::Join, join, &joined).ok());
    }

    join.clear_config();
    join.set_config_fingerprint(cluster.config().fingerprint());
    join.set_plan_fingerprint(cluster.config().plan().fingerprint());
    REQUIRE(call(&ParameterServer::Stub::Join, join, &joined).ok());
    LeaveRequest leave;
    leave.set_incarnation(4711);
    leave.set_error("done\n[12:00:00.000] [ps] [error] forged \x1b[2J" + std::string(100'000, 'x'));
    LeaveResponse left;
    REQUIRE(call(&ParameterServer::Stub::Leave, leave, &left).ok());
  }
  CHECK_THAT(log.str(), Contains("worker 0 left: done\\n[12:00:00.000]"));
  CHECK_THAT(log.str(), !Contains("\x1b"));
  for (const absl::string_view line : absl::StrSplit(log.str(), '\n')) CHECK(line.size() < 2500);
  // Those of limits.strangers.log_lines, and "left".
  CHECK(absl::c_count(log.str(), '\n') <= 10 + 1);
}

TEST_CASE("a rank already taken is refused while its worker goes on") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=1"}));
  absl::StatusOr<std::unique_ptr<Exchange>> first = cluster.Connect(0);
  REQUIRE(first.ok());
  const absl::StatusOr<std::unique_ptr<Exchange>> second = cluster.Connect(0);
  CHECK(absl::IsAlreadyExists(second.status()));
  CHECK_THAT(Message(second.status()),
             Contains("shard 0 (127.0.0.1:") && Contains("rank 0 is taken by worker 0"));
  std::vector<float> parameters(cluster.config().model().buffer_size());
  REQUIRE((*first)->Pull(absl::MakeSpan(parameters)).ok());
  REQUIRE(
      (*first)
          ->PushPull(0, TestGradient(cluster.config().model(), 0, 0), absl::MakeSpan(parameters))
          .ok());
  REQUIRE((*first)->Leave(absl::OkStatus()).ok());
}

TEST_CASE("an unknown rank and another model are refused at Join") {
  TestCluster cluster(MustParse(kSmallConfig));
  const PlannedConfig three_workers = MustParse(kSmallConfig, {"workers=3"});
  const auto connect = [&](const PlannedConfig& config, int rank) {
    return Exchange::Connect({.config = &config, .rank = rank, .addresses = cluster.addresses()})
        .status();
  };
  CHECK_THAT(Message(connect(three_workers, 2)), Contains("workers: 2 -> 3"));
  CHECK(absl::IsOutOfRange(connect(cluster.config(), 7)));
  const PlannedConfig other_model =
      MustParse(kSmallConfig, {"model={input {channels: 5 height: 1 width: 1} layer {name: \"a\" "
                               "linear {out_features: 200}}}"});
  const absl::Status status = connect(other_model, 0);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK_THAT(Message(status), Contains("has another plan") && Contains("model."));
}

TEST_CASE("a pull with another plan is refused") {
  TestCluster cluster(MustParse(kSmallConfig));
  const auto stub = ParameterServer::NewStub(
      grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  PullRequest request;
  request.set_plan_fingerprint(1);
  const auto reader = stub->Pull(&context, request);
  ParameterChunk chunk;
  CHECK_FALSE(reader->Read(&chunk));
  const grpc::Status status = reader->Finish();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK_THAT(status.error_message(), Contains("another plan than shard 0"));
}

TEST_CASE("a gradient that is not finite ends the run for all workers, with the reason") {
  TestCluster cluster(MustParse(kSmallConfig));
  const std::vector<float> before = cluster.Parameters();
  const Model& model = cluster.config().model();
  // They outlive the exchanges, which after an error may still send what they were lent.
  const std::vector<float> gradients[] = {
      TestGradient(model, 0, 0),
      std::vector<float>(model.buffer_size(), std::nanf("")),
  };
  std::vector<float> parameters[2];
  const std::vector<absl::Status> outcomes = cluster.RunWorkers([&](int rank, Exchange& exchange) {
    parameters[rank].resize(model.buffer_size());
    RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters[rank])));
    return exchange.PushPull(0, gradients[rank], absl::MakeSpan(parameters[rank]));
  });
  for (const absl::Status& outcome : outcomes) {
    CHECK_THAT(outcome.ToString(),
               Contains("worker 1 pushed a gradient that is not finite at iteration 0: fc"));
  }
  CHECK(cluster.Parameters() == before);
}

TEST_CASE("under SYNC a worker that vanishes ends the run for the others and is named") {
  TestCluster cluster(MustParse(kSmallConfig));
  // They outlive the exchange, which after an error may still send what it was lent.
  const std::vector<float> gradient = TestGradient(cluster.config().model(), 1, 0);
  std::vector<float> parameters(cluster.config().model().buffer_size());
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = cluster.Connect(1);
  REQUIRE(exchange.ok());
  RawWorker vanishing(cluster, 0);
  std::thread vanish([&] { vanishing.Vanish(); });
  const absl::Status status = (*exchange)->PushPull(0, gradient, absl::MakeSpan(parameters));
  vanish.join();
  // The shard's streams end with UNAVAILABLE. A worker that connects again hears that the run has
  // failed, for the same reason.
  CHECK((absl::IsUnavailable(status) || absl::IsFailedPrecondition(status)));
  CHECK_THAT(Message(status), Contains("shard 0 (") && Contains("worker 0 (") &&
                                  Contains("its connection ended before it left"));
}

TEST_CASE("a worker waits a limited time for a shard that is not up, and names it") {
  // A free port, closed again.
  std::string address;
  {
    TestCluster cluster(MustParse(kSmallConfig));
    address = cluster.addresses()[1];
  }
  TestCluster cluster(MustParse(kSmallConfig));
  const PlannedConfig impatient = MustParse(kSmallConfig, {"limits.startup_seconds=2"});
  const absl::Status status =
      Exchange::Connect(
          {.config = &impatient, .rank = 0, .addresses = {cluster.addresses()[0], address}})
          .status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Message(status) ==
        "shard 1 (" + address +
            ") was not up within 2 s (limits.startup_seconds); start it with `ps --config=FILE "
            "--shard=1`");
  // The shard that was up has its rank back and is ready for another try.
  CHECK(cluster.server(0).shard().Stats().worker(0).state() == WorkerStats::LOST);
  CHECK(cluster.Connect(0).ok());
}

TEST_CASE("shards in the wrong order are refused") {
  TestCluster cluster(MustParse(kSmallConfig));
  const absl::Status status =
      Exchange::Connect({.config = &cluster.config(),
                         .rank = 0,
                         .addresses = {cluster.addresses()[1], cluster.addresses()[0]}})
          .status();
  CHECK_THAT(Message(status), Contains("says that it is shard 1: the addresses are mixed up"));
}

TEST_CASE("a shard that ends in the middle is named by the worker") {
  TestCluster cluster(MustParse(kSmallConfig));
  // They outlive the exchange, which after an error may still send what it was lent.
  const std::vector<float> gradient = TestGradient(cluster.config().model(), 0, 0);
  std::vector<float> parameters(cluster.config().model().buffer_size());
  absl::StatusOr<std::unique_ptr<Exchange>> exchange = cluster.Connect(0);
  REQUIRE(exchange.ok());
  std::thread shutdown([&] { cluster.server(1).Shutdown(); });
  // Worker 1 never comes, so this waits until the shard is gone.
  const absl::Status status = (*exchange)->PushPull(0, gradient, absl::MakeSpan(parameters));
  shutdown.join();
  CHECK_THAT(status.ToString(),
             Contains("UNAVAILABLE: shard 1 (" + cluster.addresses()[1] + "): "));
}

TEST_CASE("two shards cannot listen on one port") {
  TestCluster cluster(MustParse(kSmallConfig));
  const PlannedConfig config =
      MustParse(kSmallConfig, {"shard[0].address=" + cluster.addresses()[0]});
  const RealClock clock;
  const absl::Status status =
      Server::Start({.config = &config, .shard = 0, .clock = &clock}).status();
  CHECK(absl::IsUnavailable(status));
  CHECK_THAT(Message(status), Contains("shard 0 cannot listen on " + cluster.addresses()[0]));
}

TEST_CASE("two shards that wait for a model cannot listen on one port") {
  // A port that was free a moment ago.
  const std::string address = TestCluster(MustParse(kSmallConfig)).addresses()[0];
  const PlannedConfig config = MustParse(
      absl::StrCat("model { from_workers {} } shard { address: \"", address,
                   "\" } workers: 1 partition { scheme: STRIPED } update { policy: SYNC }"));
  const auto first = DeclarationWait::Start({.config = &config});
  INFO(first.status().ToString());
  REQUIRE(first.ok());
  const absl::Status second = DeclarationWait::Start({.config = &config}).status();
  CHECK(absl::IsUnavailable(second));
  CHECK_THAT(Message(second), Contains("shard 0 cannot listen on " + address));
}

TEST_CASE("two shards cannot listen on one unix socket, and one that ends leaves no file") {
  const ScratchFolder folder;
  const std::string address = "unix:" + folder.Path("0.sock");
  const PlannedConfig config = MustParse(kSmallConfig, {"shard[0].address=" + address});
  const RealClock clock;
  const Server::Options options = {.config = &config, .shard = 0, .clock = &clock};
  absl::StatusOr<std::unique_ptr<Server>> first = Server::Start(options);
  REQUIRE(first.ok());
  const absl::Status status = Server::Start(options).status();
  CHECK(absl::IsUnavailable(status));
  CHECK(Message(status) == "shard 0 cannot listen on " + address + ": another process listens on " +
                               folder.Path("0.sock"));
  (*first)->Shutdown();
  CHECK(!std::filesystem::exists(folder.Path("0.sock")));
}

}  // namespace evenshard
