// Runs whose processes prove who they are.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "tests/security/secure_cluster.h"
#include "tests/testing/await.h"
#include "tests/testing/captured_log.h"

namespace evenshard {
namespace {

using Catch::Contains;

std::vector<absl::Status> Train(TestCluster& cluster, int iterations) {
  return cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    std::vector<float> parameters(cluster.config().model().buffer_size());
    RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters)));
    for (int i = 0; i < iterations; ++i) {
      RETURN_IF_ERROR(exchange.PushPull(i, TestGradient(cluster.config().model(), rank, i),
                                        absl::MakeSpan(parameters)));
    }
    return absl::OkStatus();
  });
}

TEST_CASE("a run with mTLS comes to the parameters of one without, to the bit") {
  const std::vector<std::string> exact = {"update.deterministic=true",
                                          "exchange.shared_memory=false"};
  TestCluster plain(MustParse(kSmallConfig, exact));
  RequireAllOk(Train(plain, 3));
  SecureCluster secure(exact);
  RequireAllOk(Train(secure.cluster(), 3));
  CHECK(secure.cluster().Parameters() == plain.Parameters());
}

TEST_CASE("a server that is another process, or on another host, is not spoken to") {
  SecureCluster secure;
  const Security caller = secure.Caller("caller", {.names = {"URI:evenshard://run/worker/0"}});
  const auto error = [&](const std::string& address, const ProcessName& peer) {
    const CapturedLog log;
    const auto channel = grpc::CreateChannel(address, ChannelCredentialsFor(address, caller, peer));
    const Answer answer = CallAny(channel, "/evenshard.v1.Admin/GetView", "");
    CHECK(answer.status.error_code() == grpc::StatusCode::UNAVAILABLE);
    return log.text();
  };
  CHECK_THAT(error(secure.address(), {Role::kShard, 10}),
             Contains(secure.address() + " is not spoken to: its certificate is of worker 0-9, "
                                         "shard 0-9 in run run, allowed: of shard-10"));
  CHECK_THAT(error(secure.address(), {Role::kOperator}), Contains("allowed: of operator"));
  const std::string port = secure.address().substr(secure.address().rfind(':'));
  CHECK_THAT(error("localhost" + port, {Role::kShard, 0}),
             Contains("its certificate is of the hosts 127.0.0.1, allowed: of localhost"));
}

TEST_CASE("a certificate that is replaced counts for connections that begin later") {
  SecureCluster secure;
  const std::vector<std::string> reader = {"URI:evenshard://run/reader"};
  const Security caller = secure.Caller("caller", {.names = reader});
  const auto may_read = [&](const std::shared_ptr<grpc::Channel>& channel) {
    return !CallAny(channel, "/evenshard.v1.Admin/GetStats", "").bytes.empty();
  };
  const auto kept = secure.Channel(caller);
  CHECK(may_read(kept));
  secure.Caller("caller", {.names = {"URI:evenshard://run/worker/5"}});
  AwaitTrue([&] { return !may_read(secure.Channel(caller)); });
  CHECK(may_read(kept));
}

TEST_CASE("plaintext to other hosts is refused at both ends") {
  const PlannedConfig config = MustParse(kSmallConfig, {"shard[0].address=0.0.0.0:0"});
  const RealClock clock;
  const absl::StatusOr<std::unique_ptr<Server>> server =
      Server::Start({.config = &config, .shard = 0, .clock = &clock});
  REQUIRE(!server.ok());
  CHECK_THAT(std::string(server.status().message()),
             Contains("shard 0 does not listen on 0.0.0.0:0: other hosts can reach it, and nothing "
                      "says who may do what, allowed: security {"));
  CHECK(ChannelCredentialsFor("10.0.0.1:1", Security(), {Role::kShard, 0}) == nullptr);
}

}  // namespace
}  // namespace evenshard
