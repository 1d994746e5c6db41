// The correction of stale gradients over real gRPC connections in one process: what each worker was
// sent is what it is corrected by, on whichever way it was sent.

#include <algorithm>
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

constexpr float kRate = 0.125f;
constexpr float kLambda = 0.5f;

// Who pushes, one after the other; each answer is there before the next push.
constexpr int kTurns[] = {0, 1, 1, 0, 1, 0, 0, 0, 1};

// A worker and what the shards had when it was last sent something.
struct Worker {
  std::unique_ptr<Exchange::Buffers> buffers;  // the exchange has their address
  std::unique_ptr<Exchange> exchange;
  std::vector<float> sent = {};
  int next = 0;
};

Worker Join(const TestCluster& cluster, int rank) {
  absl::StatusOr<Exchange::Buffers> buffers =
      Exchange::AllocateBuffers(cluster.config(), cluster.addresses());
  INFO(buffers.status());
  REQUIRE(buffers.ok());
  Worker worker{std::make_unique<Exchange::Buffers>(*std::move(buffers)), nullptr};
  auto exchange = Exchange::Connect({.config = &cluster.config(),
                                     .rank = rank,
                                     .addresses = cluster.addresses(),
                                     .buffers = worker.buffers.get()});
  INFO(exchange.status());
  REQUIRE(exchange.ok());
  worker.exchange = *std::move(exchange);
  REQUIRE(worker.exchange->Pull(worker.buffers->parameters.span()).ok());
  worker.sent = cluster.Parameters();
  return worker;
}

}  // namespace

TEST_CASE("a gradient is corrected by what its worker was sent, over sockets and shared memory") {
  const std::string exchange =
      GENERATE("shared_memory: true", "shared_memory: false", "schedule: SEQUENTIAL",
               "schedule: BACKWARD", "schedule: FULL", "parameter_encoding: BFLOAT16");
  CAPTURE(exchange);
  const PlannedConfig config = MustParse(
      kSmallConfig, {"update={policy: ASYNC asynchrony { correction: DELAY_COMPENSATION "
                     "lambda: 0.5 }}",
                     "optimizer={kind: SGD learning_rate: 0.125}", "exchange={" + exchange + "}"});
  TestCluster cluster(config);
  std::vector<Worker> workers;
  for (const int rank : {0, 1}) workers.push_back(Join(cluster, rank));
  std::vector<float> expected = cluster.Parameters();
  for (const int rank : kTurns) {
    Worker& worker = workers[rank];
    const std::vector<float> gradient = TestGradient(config.model(), rank, worker.next);
    for (size_t i = 0; i < expected.size(); ++i) {
      const float g = gradient[i];
      expected[i] -= kRate * (g + kLambda * (g * g) * (expected[i] - worker.sent[i]));
    }
    std::copy(gradient.begin(), gradient.end(), worker.buffers->gradients.span().begin());
    const absl::Status pushed = worker.exchange->PushPull(
        worker.next++, worker.buffers->gradients.span(), worker.buffers->parameters.span());
    INFO(pushed);
    REQUIRE(pushed.ok());
    worker.sent = cluster.Parameters();
    for (size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(worker.sent[i] == Approx(expected[i]).epsilon(1e-4).margin(1e-5));
    }
  }
  for (Worker& worker : workers) CHECK(worker.exchange->Leave(absl::OkStatus()).ok());
}

}  // namespace evenshard
