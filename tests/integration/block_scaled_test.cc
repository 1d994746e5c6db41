// The exchange in INT8, INT4 and E3M0, over real gRPC connections in one process: what arrives of
// the gradients, with error feedback and without, also when connections break.

#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "grpc/grpc.h"
#include "tests/testing/arriving_gradients.h"
#include "tests/testing/cluster.h"
#include "tests/testing/cutting_proxy.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr int kIterations = 5;

// Never shut down: the end of gRPC's last user can take the 10 s of a poller of gRPC's own.
const bool kGrpcStarted = (grpc_init(), true);

const std::vector<std::string> kExchanges = {
    "gradient_encoding: INT8",
    "gradient_encoding: INT4",
    "gradient_encoding: E3M0 gradient_rounding: STOCHASTIC",
    "gradient_encoding: INT8 error_feedback: true gradient_rounding: STOCHASTIC",
    "gradient_encoding: INT4 error_feedback: true parameter_encoding: BFLOAT16",
    "gradient_encoding: E3M0 error_feedback: true",
};

PlannedConfig ConfigFor(const std::string& exchange, std::vector<std::string> overrides = {}) {
  overrides.push_back("exchange={" + exchange + "}");
  return MustParse(kSmallConfig, overrides);
}

// Trains with test gradients. Under `skips`, worker 1 takes no part in iteration 2.
absl::Status Train(const PlannedConfig& config, int rank, bool skips, Exchange& exchange) {
  const Model& model = config.model();
  std::vector<float> parameters(model.buffer_size());
  std::vector<float> gradient;
  RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters)));
  for (int i = 0; i < kIterations; ++i) {
    gradient = TestGradient(model, rank, i);
    if (skips && rank == 1 && i == 2) gradient.clear();
    RETURN_IF_ERROR(exchange.PushPull(i, gradient, absl::MakeSpan(parameters)));
  }
  return absl::OkStatus();
}

TEST_CASE("masters are float32 sums of what arrives of the gradients") {
  const std::string exchange = GENERATE(from_range(kExchanges));
  const bool skips = GENERATE(false, true);
  CAPTURE(exchange, skips);
  const PlannedConfig config = ConfigFor(exchange, {"update.deterministic=true"});
  TestCluster cluster(config);
  std::vector<float> expected = cluster.Parameters();
  ArrivingGradients first(&config, 0), second(&config, 1);
  for (int i = 0; i < kIterations; ++i) {
    std::vector<float> sum = first.Push(i, TestGradient(config.model(), 0, i));
    float share = 1;
    if (!skips || i != 2) {
      const std::vector<float> other = second.Push(i, TestGradient(config.model(), 1, i));
      for (size_t k = 0; k < sum.size(); ++k) sum[k] += other[k];
      share = 0.5f;
    }
    for (size_t k = 0; k < sum.size(); ++k) {
      const float mean = share * sum[k];
      const float step = config.proto().optimizer().learning_rate() * mean;
      expected[k] -= step;
    }
  }
  RequireAllOk(cluster.RunWorkers(
      [&](int rank, Exchange& connected) { return Train(config, rank, skips, connected); }));
  const std::vector<float> masters = cluster.Parameters();
  // A fused multiply-add in this test may differ from the shard in the last bit.
  for (size_t k = 0; k < expected.size(); ++k) {
    REQUIRE(masters[k] == Approx(expected[k]).epsilon(1e-6).margin(1e-7));
  }
}

TEST_CASE("both sides count the encoded bytes, under every policy") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  const std::string encoding = GENERATE("INT8", "INT4", "E3M0");
  CAPTURE(policy, encoding);
  const PlannedConfig config =
      ConfigFor(absl::StrCat("gradient_encoding: ", encoding), {"update.policy=" + policy});
  TestCluster cluster(config);
  uint64_t expected = 0;
  for (const Chunk& chunk : config.plan().chunks()) {
    const int64_t blocks = encoding == "INT8" ? (chunk.size + 255) / 256 : (chunk.size + 63) / 64;
    expected += 2 * blocks + (encoding == "INT8" ? chunk.size : (chunk.size + 1) / 2);
  }
  std::vector<uint64_t> sent(2);
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    const absl::Status status = Train(config, rank, /*skips=*/false, exchange);
    sent[rank] = exchange.traffic().bytes_out;
    return status;
  }));
  uint64_t received = 0;
  for (int shard = 0; shard < 2; ++shard)
    received += cluster.server(shard).shard().Stats().bytes_in();
  CHECK(sent == std::vector<uint64_t>(2, kIterations * expected));
  CHECK(received == 2 * kIterations * expected);
}

TEST_CASE("pushes that are repeated after broken connections have the bytes that they had") {
  const std::string exchange = GENERATE(from_range(kExchanges.begin() + 3, kExchanges.end()));
  const uint64_t seed = std::random_device()();
  CAPTURE(exchange, seed);
  const PlannedConfig config = ConfigFor(exchange, {"workers=1", "limits.connections=2"});
  const auto train = [&](bool breaks) {
    TestCluster cluster(config);
    std::vector<std::unique_ptr<CuttingProxy>> proxies;
    std::vector<std::string> addresses;
    for (const std::string& address : cluster.addresses()) {
      proxies.push_back(std::make_unique<CuttingProxy>(address, seed + proxies.size(), /*cuts=*/15,
                                                       /*most_bytes=*/30'000));
      addresses.push_back(breaks ? proxies.back()->address() : address);
    }
    absl::StatusOr<std::unique_ptr<Exchange>> connected =
        Exchange::Connect({.config = &config, .rank = 0, .addresses = addresses});
    INFO(connected.status().ToString());
    REQUIRE(connected.ok());
    std::vector<float> parameters(config.model().buffer_size());
    std::vector<float> gradient;
    REQUIRE((*connected)->Pull(absl::MakeSpan(parameters)).ok());
    for (int i = 0; i < 40; ++i) {
      gradient = TestGradient(config.model(), 0, i);
      const absl::Status status = (*connected)->PushPull(i, gradient, absl::MakeSpan(parameters));
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
    CHECK((*connected)->Leave(absl::OkStatus()).ok());
    uint64_t repeats = 0;
    for (int shard = 0; shard < 2; ++shard) {
      repeats += cluster.server(shard).shard().Stats().repeated_pushes();
    }
    CHECK((repeats > 0) == breaks);
    return cluster.Parameters();
  };
  CHECK(train(/*breaks=*/true) == train(/*breaks=*/false));
}

TEST_CASE("a value that is not finite ends the run for all, and is named in its block") {
  const std::string encoding = GENERATE("INT8", "INT4", "E3M0");
  const auto [value, index] =
      GENERATE(std::pair(NAN, 700), std::pair(HUGE_VALF, 3), std::pair(2e38f, 1999));
  CAPTURE(encoding, value, index);
  TestCluster cluster(
      ConfigFor(absl::StrCat("gradient_encoding: ", encoding, " error_feedback: true")));
  const std::vector<float> before = cluster.Parameters();
  // They outlive the exchanges, which after an error may still send what they were lent.
  std::vector<float> gradients[] = {std::vector<float>(before.size(), 0.5f),
                                    std::vector<float>(before.size(), 0.5f)};
  gradients[1][index] = value;  // of fc1/weight, the first tensor
  std::vector<float> parameters[] = {before, before};
  const std::vector<absl::Status> outcomes = cluster.RunWorkers([&](int rank, Exchange& exchange) {
    RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters[rank])));
    return exchange.PushPull(0, gradients[rank], absl::MakeSpan(parameters[rank]));
  });
  for (const absl::Status& outcome : outcomes) {
    CHECK_THAT(outcome.ToString(),
               Contains(absl::StrCat("worker 1 pushed a gradient that is not finite (or beyond "
                                     "1.70141e+38, the largest ",
                                     encoding, ") at iteration 0: fc1/weight element ", index)));
  }
}

}  // namespace
}  // namespace evenshard
