// A worker's means, from a shard that answers what the test says.

#include "worker/exchange/grpc/mean_calls.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "grpcpp/grpcpp.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Answers each call of Mean with as many values as it was told.
class ShardWithMeans final : public ParameterServer::Service {
 public:
  explicit ShardWithMeans(int values) : values_(values) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ShardWithMeans() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }

  grpc::Status Mean(grpc::ServerContext*, const MeanRequest*, MeanResponse* response) override {
    response->set_complete(true);
    for (int i = 0; i < values_; ++i) response->add_value(0.5);
    return grpc::Status::OK;
  }

 private:
  const int values_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

absl::StatusOr<std::vector<double>> MeanOfTwo(const ShardWithMeans& shard) {
  const PlannedConfig config = MustParse(kSmallConfig);
  const RealClock clock;
  const auto control =
      std::make_shared<ShardControl>(ShardControl::Options{.config = &config,
                                                           .slot = 0,
                                                           .address = shard.address(),
                                                           .rank = 0,
                                                           .incarnation = 7,
                                                           .clock = &clock,
                                                           .stop = {}});
  const PersistentCalls calls({.clock = &clock,
                               .control = [&] { return control; },
                               .failure = [] { return absl::OkStatus(); },
                               .stop = {}});
  MeanCalls means(
      &calls, [] { return uint64_t{0}; }, [&] { return control; });
  return means.Ask(3, "train.py:40", {1, 2});
}

}  // namespace

TEST_CASE("a mean has as many values as were given") {
  const auto mean = MeanOfTwo(ShardWithMeans(2));
  INFO(mean.status().message());
  REQUIRE(mean.ok());
  CHECK(*mean == std::vector<double>{0.5, 0.5});
}

TEST_CASE("a mean of another number of values is refused, since the caller has no room for it") {
  const int values = GENERATE(0, 1, 3, 1000);
  const absl::Status refused = MeanOfTwo(ShardWithMeans(values)).status();
  CHECK(absl::IsInternal(refused));
  CHECK_THAT(std::string(refused.message()),
             Contains(absl::StrCat(" gave a mean of ", values, " values, asked for 2")));
}

}  // namespace evenshard
