// Training with update.max_norm, over gRPC and through shared memory: a worker whose gradients are
// a million times too large does not spoil the model.

#include <barrier>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/cluster.h"
#include "tests/testing/unix_shards.h"

namespace evenshard {
namespace {

constexpr int kInputs = 20;
constexpr int kOutputs = 8;
constexpr int kBatch = 16;
constexpr int kIterations = 150;
constexpr int kHonest = 20;  // iterations before the broken worker breaks
constexpr uint32_t kBroken = 3;

// Least squares: a linear layer learns weights from samples without noise.
constexpr char kRegression[] = R"(
  model {
    input { channels: 20 height: 1 width: 1 }
    layer { name: "fc" linear { out_features: 8 bias: false } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  shard { address: "127.0.0.1:0" }
  workers: 4
  update { policy: SYNC }
  optimizer { kind: SGD learning_rate: 0.05 }
  training { iterations: 1 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 128 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
)";

float Weight(int64_t i) { return static_cast<float>(i % 7) - 3; }

// The mean squared distance of the weights from what they should be.
double Loss(const std::vector<float>& parameters) {
  double loss = 0;
  for (int64_t i = 0; i < kInputs * kOutputs; ++i) {
    const double distance = parameters[i] - Weight(i);
    loss += distance * distance / (kInputs * kOutputs);
  }
  return loss;
}

std::vector<float> GradientOf(const std::vector<float>& parameters, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> gradient(parameters.size());
  for (int sample = 0; sample < kBatch; ++sample) {
    std::vector<float> inputs(kInputs);
    for (float& input : inputs) input = normal(random);
    for (int out = 0; out < kOutputs; ++out) {
      float error = 0;
      for (int in = 0; in < kInputs; ++in) {
        const int64_t i = out * kInputs + in;
        error += (parameters[i] - Weight(i)) * inputs[in];
      }
      for (int in = 0; in < kInputs; ++in) {
        gradient[out * kInputs + in] += error * inputs[in] / kBatch;
      }
    }
  }
  return gradient;
}

struct Result {
  absl::Status status = {};
  std::vector<float> parameters = {};
  std::vector<uint64_t> limited = {};  // by worker
  uint64_t chunks = 0;
};

Result Train(std::vector<std::string> overrides) {
  const UnixShards addresses(2);  // QUORUM needs ones that are known before
  overrides.insert(overrides.end(), addresses.overrides().begin(), addresses.overrides().end());
  TestCluster cluster(MustParse(kRegression, overrides));
  const int workers = cluster.config().workers();
  std::barrier all_honest(workers);
  // By rank. After an error the exchange uses them until it has left.
  std::vector<std::vector<float>> all_parameters(workers);
  std::vector<std::vector<float>> gradients(workers);
  const std::vector<absl::Status> outcomes =
      cluster.RunWorkers([&](uint32_t rank, Exchange& exchange) {
        std::mt19937 random(rank);
        std::vector<float>& parameters = all_parameters[rank];
        parameters.resize(cluster.config().model().buffer_size());
        absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
        bool has_waited = false;
        while (status.ok() && exchange.next_iteration() < kIterations) {
          const int64_t iteration = exchange.next_iteration();
          if (iteration >= kHonest && !std::exchange(has_waited, true)) {
            all_honest.arrive_and_wait();
          }
          std::vector<float>& gradient = gradients[rank];
          gradient = GradientOf(parameters, random);
          if (rank == kBroken && iteration >= kHonest) {
            for (float& element : gradient) element *= 1e6f;
          }
          status = exchange.PushPull(iteration, gradient, absl::MakeSpan(parameters));
          // Under QUORUM its gradient may have come too late.
          if (status.ok() && exchange.is_behind()) {
            status = exchange.Pull(absl::MakeSpan(parameters));
          }
        }
        if (!has_waited) all_honest.arrive_and_drop();
        return status;
      });
  Result result{.parameters = cluster.Parameters(), .limited = std::vector<uint64_t>(workers)};
  for (const absl::Status& outcome : outcomes) result.status.Update(outcome);
  for (int shard = 0; shard < cluster.config().shards(); ++shard) {
    const ShardStats stats = cluster.server(shard).shard().Stats();
    uint64_t sum = 0;
    for (const WorkerStats& worker : stats.worker()) {
      result.limited[worker.worker()] += worker.limited_pushes();
      sum += worker.limited_pushes();
    }
    CHECK(stats.limited_pushes() == sum);
    result.chunks += stats.chunks();
  }
  return result;
}

TEST_CASE("a worker whose gradients are a million times too large does not spoil the model") {
  const std::string policy =
      GENERATE("update.policy=SYNC", "update.policy=ASYNC", "update={policy: SSP staleness: 3}",
               "update={policy: QUORUM quorum: 3}");
  const std::string path = GENERATE("exchange.shared_memory=true", "exchange.shared_memory=false");
  CAPTURE(policy, path);
  const Result without = Train({policy, path, "workers=3"});
  REQUIRE(without.status.ok());
  REQUIRE(Loss(without.parameters) < 1e-3);
  CHECK(without.limited == std::vector<uint64_t>{0, 0, 0});

  const Result limited = Train({policy, path, "update.max_norm=4"});
  INFO(limited.status.ToString());
  REQUIRE(limited.status.ok());
  CHECK(Loss(limited.parameters) < 1e-3);
  // Almost all of its gradients that counted were limited, and almost none of others.
  const uint64_t broken = limited.limited[kBroken];
  CHECK(broken <= (kIterations - kHonest) * limited.chunks);
  CHECK(broken > (kIterations - kHonest) * limited.chunks / 4);
  for (uint32_t rank = 0; rank < kBroken; ++rank) CHECK(limited.limited[rank] < broken / 20);

  const Result spoiled = Train({policy, path});
  CHECK((!spoiled.status.ok() || !(Loss(spoiled.parameters) < 1)));
}

TEST_CASE("every gradient encoding is limited in training") {
  const std::string encoding = GENERATE("BFLOAT16", "INT8", "INT4");
  const Result limited = Train({"exchange.gradient_encoding=" + encoding, "update.max_norm=4"});
  REQUIRE(limited.status.ok());
  CHECK(Loss(limited.parameters) < 1e-3);
  CHECK(limited.limited[kBroken] > (kIterations - kHonest) * limited.chunks / 2);
}

TEST_CASE("runs with limited gradients have the same bits each time if they are deterministic") {
  const std::vector<std::string> overrides = {"update.deterministic=true", "update.max_norm=4"};
  const Result first = Train(overrides);
  const Result second = Train(overrides);
  REQUIRE(first.status.ok());
  REQUIRE(second.status.ok());
  CHECK(first.limited[kBroken] > 0);
  CHECK(first.limited == second.limited);
  CHECK(first.parameters == second.parameters);
}

TEST_CASE("an honest run has the bits of one without a bound") {
  const std::string workers = "workers=3";
  const Result bounded = Train({workers, "update.deterministic=true", "update.max_norm=10"});
  const Result unbounded = Train({workers, "update.deterministic=true"});
  REQUIRE(bounded.status.ok());
  REQUIRE(unbounded.status.ok());
  CHECK(bounded.limited == std::vector<uint64_t>{0, 0, 0});
  CHECK(bounded.parameters == unbounded.parameters);
}

}  // namespace
}  // namespace evenshard
