// What strangers may cost a shard: its memory, seen from outside as a process of its own, and the
// Pulls that it serves.

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/notification.h"
#include "common/net/pull.h"
#include "common/security/refusal_log.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/cluster.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

// One shard with 27 chunks of the default size.
constexpr char kConfig[] = R"(
  model {
    input { channels: 1024 height: 1 width: 1 }
    layer { name: "fc" linear { out_features: 4096 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  workers: 2
  update { policy: ASYNC }
  training { iterations: 1 }
  compute { backend: EMULATED }
  limits { exchange_seconds: 60 }
)";
constexpr int kMostPulls = 8;  // the default of limits.strangers.pulls

// With a connection of its own. Its window does not grow by gRPC's estimate (BDP probing), so that
// far less than a shard's parameters are on their way to a client that does not read.
std::shared_ptr<grpc::Channel> ConnectTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// A shard as a process of its own.
class ShardProcess {
 public:
  ShardProcess()
      : program_({"server/ps", "--config=" + folder_.Write("c.textproto", kConfig), "--shard=0"}) {
    program_.WaitFor(": owns");
    const std::vector<std::string> words = absl::StrSplit(program_.output(), ' ');
    for (const std::string& word : words) {
      if (absl::StartsWith(word, "127.0.0.1:")) address_ = word.substr(0, word.size() - 1);
    }
  }

  std::shared_ptr<grpc::Channel> Connect() const { return ConnectTo(address_); }

  // A field of /proc/PID/status in bytes: VmRSS, the resident memory, or VmHWM, the most so far.
  int64_t Memory(const std::string& field) const {
    std::ifstream status(absl::StrCat("/proc/", program_.pid(), "/status"));
    for (std::string name, value; status >> name; std::getline(status, value)) {
      if (name != field + ":") continue;
      status >> value;
      return std::stoll(value) * 1024;
    }
    FAIL("no " << field);
    return 0;
  }

 private:
  const ScratchFolder folder_;
  Program program_;
  std::string address_;
};

grpc::Status SendCompressed(const ShardProcess& shard, const std::string& method,
                            const std::string& message) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  context.AddMetadata("ps-worker", "0");
  context.AddMetadata("ps-incarnation", "4711");
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(shard.Connect());
  const auto stream = stub.PrepareCall(&context, "/evenshard.v1." + method, &queue);
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    REQUIRE(queue.Next(&tag, &ok));
  };
  stream->StartCall(nullptr);
  next();
  const grpc::Slice slice(message);
  stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  next();
  grpc::Status status(grpc::StatusCode::UNKNOWN, "did not run");
  stream->Finish(&status, nullptr);
  next();
  return status;
}

// A Pull that is not read. Cancelled in the end.
class UnreadPull final : private grpc::ClientReadReactor<ParameterChunk> {
 public:
  UnreadPull(const std::shared_ptr<grpc::Channel>& channel, const PlannedConfig& config)
      : stub_(ParameterServer::NewStub(channel)) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    request_.set_plan_fingerprint(config.plan().fingerprint());
    stub_->async()->Pull(&context_, &request_, this);
    StartCall();
  }
  ~UnreadPull() override {
    context_.TryCancel();
    ended_.WaitForNotification();
  }

  bool HasEnded() const { return ended_.HasBeenNotified(); }
  const grpc::Status& AwaitEnd() {
    ended_.WaitForNotification();
    return status_;
  }

 private:
  void OnDone(const grpc::Status& status) override {
    status_ = status;
    ended_.Notify();
  }

  const std::unique_ptr<ParameterServer::Stub> stub_;
  PullRequest request_;
  grpc::ClientContext context_;
  grpc::Status status_;
  absl::Notification ended_;
};

int64_t CountEnded(const std::vector<std::unique_ptr<UnreadPull>>& pulls) {
  return absl::c_count_if(pulls, [](const auto& pull) { return pull->HasEnded(); });
}

// Of how many connections a shard's log says that it ended a Pull.
size_t CountClientsEnded(const std::string& log) {
  absl::flat_hash_set<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, "the rest of the Pull of ")) lines.emplace(line);
  }
  return lines.size();
}

}  // namespace

TEST_CASE("a compressed message is refused before it is inflated") {
  const ShardProcess shard;
  const std::string zeros(50 << 20, '\0');
  const int64_t before = shard.Memory("VmHWM");
  for (const std::string method :
       {"ParameterServer/Join", "ParameterServer/Leave", "ParameterServer/Report",
        "ParameterServer/Exchange", "ParameterServer/Pull", "Admin/GetStats", "Admin/Shutdown"}) {
    const grpc::Status refused = SendCompressed(shard, method, zeros);
    CAPTURE(method);
    CHECK(refused.error_code() == grpc::StatusCode::UNIMPLEMENTED);
    CHECK_THAT(refused.error_message(), Contains("Compression algorithm 'gzip' is disabled"));
  }
  const int64_t growth = shard.Memory("VmHWM") - before;
  CAPTURE(growth);
  CHECK(growth < 10'000'000);  // 50 MiB and more if it were inflated once
}

// A sanitizer's allocator keeps what was freed, so that it says nothing about the shard's.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("Pulls that nobody reads cost a shard little, and it gives the memory back") {
  const ShardProcess shard;
  const PlannedConfig config = MustParse(kConfig);
  const int64_t before = shard.Memory("VmRSS");
  {
    std::vector<std::shared_ptr<grpc::Channel>> channels;
    for (int i = 0; i < 6; ++i) channels.push_back(shard.Connect());
    std::vector<std::unique_ptr<UnreadPull>> pulls;
    for (size_t i = 0; i < 300; ++i) {
      pulls.push_back(std::make_unique<UnreadPull>(channels[i % channels.size()], config));
    }
    AwaitTrue([&] { return CountEnded(pulls) == 300 - kMostPulls; });
    const int64_t growth = shard.Memory("VmHWM") - before;
    CAPTURE(growth);
    CHECK(growth < 40'000'000);
  }
  AwaitTrue([&] { return shard.Memory("VmRSS") < before + 10'000'000; });
}
#endif

TEST_CASE("a Pull beyond the bound is refused, naming it, and keeps no worker out") {
  TestCluster cluster(
      MustParse(absl::StrReplaceAll(kConfig, {{"limits {", "limits { strangers { pulls: 3 }"}})));
  const auto channel = ConnectTo(cluster.addresses()[0]);
  const auto served = [&] { return cluster.server(0).shard().Stats().pulls(); };
  std::vector<std::unique_ptr<UnreadPull>> pulls;
  do {
    const auto before = served();
    pulls.push_back(std::make_unique<UnreadPull>(channel, cluster.config()));
    AwaitTrue([&] { return pulls.back()->HasEnded() || served() > before; });
  } while (!pulls.back()->HasEnded());
  const grpc::Status refused = pulls.back()->AwaitEnd();
  CHECK(refused.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  const absl::StatusOr<std::unique_ptr<Exchange>> exchange = cluster.Connect(0);
  REQUIRE(exchange.ok());
  std::vector<float> parameters(cluster.config().model().buffer_size());
  CHECK((*exchange)->Pull(absl::MakeSpan(parameters)).ok());
  CHECK(refused.error_message() ==
        "the shard serves 3 Pulls, the most at a time that are not a worker's; try again when "
        "another has ended");
  CHECK(pulls.size() == 4);
  CHECK(CountEnded(pulls) == 1);

  pulls.clear();
  const auto reader = ParameterServer::NewStub(channel);
  AwaitTrue([&] {
    grpc::ClientContext context;
    return PullShard(reader.get(), &context, cluster.config().plan(), 0,
                     [](const Chunk&, const ParameterChunk&) { return absl::OkStatus(); })
        .ok();
  });
}

TEST_CASE("a Pull that nobody reads is ended after limits.exchange_seconds, with the reason") {
  const PlannedConfig config =
      MustParse(kConfig, {"limits.exchange_seconds=0.5", "limits.strangers.log_lines=1000"});
  const CapturedLog log;
  FakeClock clock;
  const auto server = Server::Start({.config = &config, .shard = 0, .clock = &clock});
  REQUIRE(server.ok());
  const auto stub = ParameterServer::NewStub(ConnectTo((*server)->address()));
  grpc::ClientContext context;
  PullRequest request;
  request.set_plan_fingerprint(config.plan().fingerprint());
  const auto unread = stub->Pull(&context, request);
  std::vector<std::unique_ptr<UnreadPull>> others;
  for (int i = 1; i < kMostPulls; ++i) {
    others.push_back(std::make_unique<UnreadPull>(ConnectTo((*server)->address()), config));
  }
  AwaitTrue([&] { return (*server)->shard().Stats().pulls() == kMostPulls; });
  const auto reader = ParameterServer::NewStub(ConnectTo((*server)->address()));
  const auto pull = [&] {
    grpc::ClientContext another;
    return PullShard(reader.get(), &another, config.plan(), 0,
                     [](const Chunk&, const ParameterChunk&) { return absl::OkStatus(); });
  };
  CHECK(absl::IsResourceExhausted(pull()));
  const uint64_t refusals = Refusals();
  // Again and again, since what a connection's buffers take is still being written.
  AwaitTrue([&] {
    clock.Advance(absl::Seconds(1));
    return CountClientsEnded(log.text()) == kMostPulls;
  });
  CHECK(Refusals() >= refusals + kMostPulls);  // and so the lines have a limit
  AwaitTrue([&] { return pull().ok(); });

  // What was on its way when the Pull ended comes first.
  for (ParameterChunk chunk; unread->Read(&chunk);) {
  }
  const grpc::Status ended = unread->Finish();
  CHECK(ended.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(ended.error_message() ==
        "no chunk of the Pull was read for 500ms (limits.exchange_seconds)");
}

}  // namespace evenshard
