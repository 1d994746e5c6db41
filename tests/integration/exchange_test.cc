// Workers and shards over real gRPC connections, in one process.

#include "worker/exchange/grpc/exchange.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

constexpr int kIterations = 4;

// Trains with test gradients as every worker of the config; returns the parameters.
std::vector<float> TrainedParameters(const PlannedConfig& config) {
  TestCluster cluster(config);
  const Model& model = config.model();
  const std::vector<absl::Status> outcomes = cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(model.buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    for (int i = 0; i < kIterations && status.ok(); ++i) {
      status = exchange.PushPull(i, TestGradient(model, rank, i), absl::MakeSpan(parameters));
    }
    if (status.ok() && config.proto().update().policy() == Update::SYNC &&
        parameters != cluster.Parameters()) {
      return absl::InternalError("the worker's parameters are not the shards'");
    }
    return status;
  });
  RequireAllOk(outcomes);
  return cluster.Parameters();
}

void RequireNear(const std::vector<float>& actual, const std::vector<float>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == Approx(expected[i]).epsilon(1e-5).margin(1e-6)) continue;
    CAPTURE(i);
    REQUIRE(actual[i] == expected[i]);
  }
}

}  // namespace

TEST_CASE("SYNC with W workers equals one process that applies the mean gradient") {
  // Without a lead, a shard does not read on from any worker but the slowest.
  const std::string pacing = GENERATE("limits.lead_bytes=0", "limits.lead_bytes=2097152");
  const std::string chunks = "limits.chunk_bytes=256";
  for (const int workers : {1, 2, 5}) {
    CAPTURE(workers, pacing);
    const PlannedConfig config = MustParse(
        kSmallConfig, {absl::StrCat("workers=", workers), "optimizer.kind=ADAM", pacing, chunks});
    const std::vector<float> actual = TrainedParameters(config);

    // The reference: one worker that pushes the mean, with one shard.
    std::string text = kSmallConfig;
    const std::string second = "  shard { address: \"127.0.0.1:0\" }\n";
    text.erase(text.find(second), second.size());
    const PlannedConfig single = MustParse(text, {"workers=1", "optimizer.kind=ADAM"});
    TestCluster reference(single);
    RequireAllOk(reference.RunWorkers([&](int, Exchange& exchange) {
      std::vector<float> parameters(single.model().buffer_size());
      absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
      for (int i = 0; i < kIterations && status.ok(); ++i) {
        std::vector<double> sum(single.model().buffer_size());
        for (int rank = 0; rank < workers; ++rank) {
          const std::vector<float> gradient = TestGradient(single.model(), rank, i);
          for (size_t k = 0; k < sum.size(); ++k) sum[k] += gradient[k];
        }
        std::vector<float> mean(sum.size());
        for (size_t k = 0; k < sum.size(); ++k) mean[k] = static_cast<float>(sum[k] / workers);
        status = exchange.PushPull(i, mean, absl::MakeSpan(parameters));
      }
      return status;
    }));
    RequireNear(actual, reference.Parameters());
  }
}

TEST_CASE("deterministic runs are bit-equal under every placement, chunk size and repetition") {
  std::vector<std::vector<float>> results;
  for (const std::string partition : {"{scheme: MEMORY_BASED}", "{scheme: LAYER_BASED}",
                                      "{scheme: LAYER_BASED placement: GREEDY}",
                                      "{scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN}",
                                      "{scheme: STRIPED}", "{scheme: AUTO}"}) {
    // In the last the size of chunks is chosen.
    for (const std::string limits :
         {"{chunk_bytes: 256 held_bytes: 4096}", "{chunk_bytes: 4096 held_bytes: 4096}", "{}"}) {
      CAPTURE(partition, limits);
      results.push_back(TrainedParameters(MustParse(
          kSmallConfig, {"workers=4", "update.deterministic=true", "optimizer.kind=MOMENTUM",
                         "partition=" + partition, "limits=" + limits})));
      REQUIRE(results.back() == results.front());
    }
  }
}

TEST_CASE("the number of shards does not change a deterministic run") {
  std::string text = kSmallConfig;
  std::vector<float> first;
  for (int shards = 2; shards <= 5; ++shards) {
    const std::vector<float> parameters = TrainedParameters(
        MustParse(text, {"workers=3", "update.deterministic=true", "optimizer.kind=ADAM"}));
    if (first.empty()) first = parameters;
    REQUIRE(parameters == first);
    text += "  shard { address: \"127.0.0.1:0\" }\n";
  }
}

TEST_CASE("running statistics change by the mean of the pushed values, whatever the optimizer") {
  const std::string policy = GENERATE("SYNC", "ASYNC");
  const std::string optimizer = GENERATE(
      "{kind: SGD learning_rate: 0.1 weight_decay: 0.5}", "{kind: ADAM learning_rate: 0.1}",
      "{kind: MOMENTUM learning_rate: 0.1 schedule: {warmup_iterations: 100}}");
  CAPTURE(policy, optimizer);
  TestCluster cluster(MustParse(kSmallConfig, {R"(model={ input { channels: 3 height: 4 width: 4 }
                            layer { name: "c" conv { out_channels: 20 kernel: 3 } }
                            layer { name: "n" batch_norm {} }
                            layer { name: "f" linear { out_features: 2 } } })",
                                               "workers=3", "update.policy=" + policy,
                                               "update.clip_value=0.5", "optimizer=" + optimizer}));
  const Model& model = cluster.config().model();
  const std::vector<float> start = cluster.Parameters();
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    const float push[] = {1, 2, 6};
    std::vector<float> parameters(model.buffer_size());
    RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters)));
    return exchange.PushPull(0, std::vector<float>(model.buffer_size(), push[rank]),
                             absl::MakeSpan(parameters));
  }));
  const std::vector<float> end = cluster.Parameters();
  for (const Tensor& tensor : model.tensors()) {
    CAPTURE(tensor.name);
    const bool statistic = tensor.role == TensorRole::kRunningStatistic;
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      const float lost = start[i] - end[i];
      if (statistic) {
        REQUIRE(lost == Approx((1 + 2 + 6) / 3.0));
      } else {
        REQUIRE(std::abs(lost) < 1);  // clipped, and a tenth of it
        REQUIRE(lost != 0);
      }
    }
  }
}

TEST_CASE("under ASYNC no gradient is lost or repeated") {
  // With a learning rate of 1 and integer gradients, every push changes every parameter
  // by exactly an integer, so what the parameters lost is the sum of all pushes.
  const int workers = 4;
  const int iterations = 25;
  TestCluster cluster(MustParse(kSmallConfig, {"workers=4", "update.policy=ASYNC",
                                               "optimizer={kind: SGD learning_rate: 1}"}));
  const Model& model = cluster.config().model();
  const std::vector<float> start = cluster.Parameters();
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(model.buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    const std::vector<float> gradient(model.buffer_size(), static_cast<float>(1 << rank));
    for (int i = 0; i < iterations && status.ok(); ++i) {
      status = exchange.PushPull(i, gradient, absl::MakeSpan(parameters));
    }
    return status;
  }));
  const std::vector<float> end = cluster.Parameters();
  for (const Tensor& tensor : model.tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      // Within the rounding of a start value to the grain of a number below 512.
      REQUIRE(start[i] - end[i] == Approx(iterations * 15).margin(2e-3));
    }
  }
  for (int shard = 0; shard < 2; ++shard) {
    const ShardStats stats = cluster.server(shard).shard().Stats();
    const uint64_t expected = stats.chunks() * workers * iterations;
    CHECK(stats.pushes() == expected);
    CHECK(stats.updates() == expected);
    CHECK(stats.repeated_pushes() == 0);
    uint64_t in_histogram = 0;
    for (const StalenessBucket& bucket : stats.staleness()) in_histogram += bucket.pushes();
    CHECK(in_histogram == expected);
  }
}

TEST_CASE("the shards' statistics agree with what the workers counted") {
  TestCluster cluster(MustParse(kSmallConfig, {"workers=3"}));
  const Model& model = cluster.config().model();
  std::vector<Exchange::Traffic> counted(3);
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(model.buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    for (int i = 0; i < kIterations && status.ok(); ++i) {
      // Worker 2 leaves one gradient out.
      const std::vector<float> gradient =
          rank == 2 && i == 1 ? std::vector<float>() : TestGradient(model, rank, i);
      status = exchange.PushPull(i, gradient, absl::MakeSpan(parameters));
    }
    counted[rank] = exchange.traffic();
    return status;
  }));
  Exchange::Traffic workers;
  for (const auto& traffic : counted) {
    workers.pushes += traffic.pushes;
    workers.bytes_out += traffic.bytes_out;
    workers.bytes_in += traffic.bytes_in;
  }
  uint64_t pushes = 0, skipped = 0, bytes_in = 0, bytes_out = 0, member_pushes = 0, chunks = 0;
  for (int shard = 0; shard < 2; ++shard) {
    const ShardStats stats = cluster.server(shard).shard().Stats();
    CHECK(stats.updates() == stats.chunks() * kIterations);
    CHECK(stats.failure().empty());
    chunks += stats.chunks();
    pushes += stats.pushes();
    skipped += stats.skipped_pushes();
    bytes_in += stats.bytes_in();
    bytes_out += stats.bytes_out();
    for (const WorkerStats& worker : stats.worker()) {
      CHECK(worker.state() == WorkerStats::LEFT);
      CHECK(worker.iteration() == kIterations);
      member_pushes += worker.pushes() + worker.skipped_pushes();
    }
  }
  const uint64_t pulled = 3 * model.parameter_count() * sizeof(float);  // before the first push
  CHECK(pushes + skipped == workers.pushes);
  CHECK(skipped == chunks);
  CHECK(member_pushes == workers.pushes);
  CHECK(bytes_in == workers.bytes_out);
  CHECK(bytes_out == workers.bytes_in + pulled);
}

TEST_CASE("initial parameters do not depend on the partitioning") {
  TestCluster memory(MustParse(kSmallConfig));
  TestCluster layers(MustParse(kSmallConfig, {"partition={scheme: LAYER_BASED}"}));
  CHECK(memory.Parameters() == layers.Parameters());
  const std::vector<float> parameters = memory.Parameters();
  CHECK(std::count(parameters.begin(), parameters.end(), 0.0f) < 200);  // biases and gaps
}

}  // namespace evenshard
