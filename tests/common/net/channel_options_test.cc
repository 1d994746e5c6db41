#include "common/net/channel_options.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/net/unix_socket.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/process_of_nobody.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Answers GetStats as the test says, on a server with this project's options or gRPC's own.
class StatsServer final : public Admin::Service {
 public:
  explicit StatsServer(bool with_options) {
    grpc::ServerBuilder builder;
    if (with_options) SetServerOptions(ClusterConfig(), /*chunks=*/1, &builder);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~StatsServer() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }

  // To be set before the first call.
  bool compresses = false;
  absl::Notification* blocked_until = nullptr;

  std::atomic<int> calls{0};       // under way
  std::atomic<int> most_calls{0};  // at the same time

  grpc::Status GetStats(grpc::ServerContext* context, const GetStatsRequest*,
                        ShardStats* stats) override {
    const int now = ++calls;
    int most = most_calls;
    while (most < now && !most_calls.compare_exchange_weak(most, now)) {
    }
    if (blocked_until != nullptr) blocked_until->WaitForNotification();
    --calls;
    if (compresses) context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    stats->set_failure(std::string(100'000, 'x'));
    return grpc::Status::OK;
  }

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

struct Answer {
  grpc::Status status = grpc::Status(grpc::StatusCode::UNKNOWN, "did not run");
  ShardStats stats;
};

Answer GetStats(const std::shared_ptr<grpc::Channel>& channel,
                grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_compression_algorithm(compression);
  Answer answer;
  answer.status = Admin::NewStub(channel)->GetStats(&context, GetStatsRequest(), &answer.stats);
  return answer;
}

}  // namespace

TEST_CASE("a server refuses compressed requests, and says so") {
  const StatsServer server(/*with_options=*/true);
  const auto channel = grpc::CreateChannel(server.address(), grpc::InsecureChannelCredentials());
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    const grpc::Status refused = GetStats(channel, algorithm).status;
    CHECK(refused.error_code() == grpc::StatusCode::UNIMPLEMENTED);
    CHECK_THAT(refused.error_message(), Contains("Compression algorithm") && Contains("disabled"));
  }
  CHECK(GetStats(channel).status.ok());
  CHECK(server.most_calls == 1);
}

TEST_CASE("a client refuses a compressed reply") {
  StatsServer server(/*with_options=*/false);
  server.compresses = true;
  for (const bool bulk : {false, true}) {
    const Answer answer =
        GetStats(bulk ? CreateBulkChannel(server.address(), ClusterConfig(), {.role = Role::kShard})
                      : CreateChannel(server.address(), ClusterConfig(), {.role = Role::kShard}));
    // With gRPC's "Compression algorithm 'gzip' is disabled", or, where the whole reply has come
    // before gRPC looks at it, "No message returned".
    CHECK(answer.status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
    CHECK(answer.stats.failure().empty());
  }
}

TEST_CASE("a stream does not go to another user's unix socket") {
  const ScratchFolder folder;
  const std::string path = folder.Path("socket");
  std::filesystem::permissions(folder.Path("."), std::filesystem::perms::all);
  std::optional<UnixListeningSocket> theirs;  // of the other process
  const ProcessOfNobody nobody([&] {
    theirs.emplace(*UnixListeningSocket::Listen(path));
    return "";
  });
  if (!nobody.result().has_value()) return;
  const CapturedLog log;
  const auto channel = CreateBulkChannel("unix:" + path, ClusterConfig(), {.role = Role::kShard});
  // Where nobody answers, not even a deadline is waited for.
  CHECK(GetStats(channel).status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK_THAT(log.text(), Contains("is of user 65534, allowed: user 0"));
}

TEST_CASE("the streams of a connection are bounded: further calls wait") {
  StatsServer server(/*with_options=*/true);
  absl::Notification go_on;
  server.blocked_until = &go_on;
  const auto channel = CreateChannel(server.address(), ClusterConfig(), {.role = Role::kShard});
  std::vector<Answer> answers(40);
  std::vector<std::thread> threads;
  for (Answer& answer : answers) {
    threads.emplace_back([&answer, &channel] { answer = GetStats(channel); });
  }
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (server.calls < 16 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  go_on.Notify();
  for (std::thread& thread : threads) thread.join();
  for (const Answer& answer : answers) CHECK(answer.status.ok());
  CHECK(server.most_calls == 16);
}

}  // namespace evenshard
