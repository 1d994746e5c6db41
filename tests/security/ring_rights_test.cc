// What a worker of a ring takes from whom, with mTLS.

#include <catch2/catch.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/security/credentials.h"
#include "common/wire/exchange_metadata.h"
#include "proto/ring.pb.h"
#include "tests/security/secure_cluster.h"
#include "tests/testing/certificates.h"
#include "tests/testing/scratch_folder.h"
#include "tests/worker/ring/grpc/test_ring.h"
#include "tools/launch/free_port.h"

namespace evenshard {
namespace {

// Two workers on TCP, with certificates of run "run".
class SecureRing {
 public:
  SecureRing() {
    authority_.Issue("all", {.names = {"URI:evenshard://run/worker/0-1", "IP:127.0.0.1"}});
    std::vector<std::string> overrides = {
        "ring={bucket_bytes: 4096 first_bucket_bytes: 1024 address: '127.0.0.1:0' "
        "address: '127.0.0.1:0'}",
        authority_.Override("all")};
    const absl::StatusOr<Config> config =
        Config::Parse(absl::StrCat(kRingConfig, " workers: 2"), "ring.textproto", overrides);
    REQUIRE(config.ok());
    const auto ports = FreePortOverrides(*config);
    REQUIRE(ports.ok());
    overrides.insert(overrides.end(), ports->begin(), ports->end());
    ring_.emplace(2, overrides);
  }

  TestRing& ring() { return *ring_; }

  // A channel to worker 0 of a caller with the certificate of a worker.
  std::shared_ptr<grpc::Channel> Channel(int rank) const {
    const std::string name = absl::StrCat("worker", rank);
    authority_.Issue(name, {.names = {absl::StrCat("URI:evenshard://run/worker/", rank)}});
    const std::string& address = ring_->config().proto().ring().address(0);
    return grpc::CreateChannel(address, ChannelCredentialsFor(address, authority_.SecurityOf(name),
                                                              {.role = Role::kWorker, .index = 0}));
  }

 private:
  const ScratchFolder folder_;
  const TestAuthority authority_{folder_, "authority"};
  std::optional<TestRing> ring_;
};

bool IsRefused(const Answer& answer) {
  INFO(answer.status.error_code() << " " << answer.status.error_message());
  CHECK_FALSE(answer.status.ok());  // there is no such incarnation
  return answer.status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
}

TEST_CASE("a worker speaks for the ranks of its certificate only") {
  SecureRing secure;
  constexpr uint64_t kIncarnation = 77;
  const auto outcomes = secure.ring().RunWorkers([&](int rank, RingExchange& exchange) {
    if (rank != 0) return exchange.Mean("the other one has looked", {}).status();
    RingFailure failure;  // `worker` and `incarnation` are the same fields in a note
    failure.set_worker(1);
    failure.set_incarnation(kIncarnation);
    RingJoinRequest join;
    join.set_worker(1);
    join.set_incarnation(kIncarnation);
    const std::vector<std::pair<std::string, std::string>> unary = {
        {"Join", join.SerializeAsString()},
        {"Fail", failure.SerializeAsString()},
        {"Tell", failure.SerializeAsString()}};
    const std::vector<std::pair<std::string, std::string>> as_one = {
        {kWorkerMetadata, "1"}, {kIncarnationMetadata, absl::StrCat(kIncarnation)}};
    for (const int caller : {1, 5}) {
      const auto channel = secure.Channel(caller);
      const bool is_other = caller != 1;
      for (const auto& [method, request] : unary) {
        INFO(method << " by worker " << caller);
        CHECK(IsRefused(CallAny(channel, "/evenshard.v1.Ring/" + method, request)) == is_other);
      }
      for (const std::string method : {"Reduce", "Gather"}) {
        INFO(method << " by worker " << caller);
        CHECK(IsRefused(CallAny(channel, "/evenshard.v1.Ring/" + method, "", as_one)) == is_other);
      }
    }
    return exchange.Mean("the other one has looked", {}).status();
  });
  for (const absl::Status& outcome : outcomes) CHECK(outcome == absl::OkStatus());
}

}  // namespace
}  // namespace evenshard
