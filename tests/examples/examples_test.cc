// The examples of the headers that a user of the libraries starts from. headers_test holds each
// block between `[` and `]` equal to the comment of the header that it names.

#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/placement/plan/plan.h"
#include "common/placement/planned_config.h"
#include "server/server.h"
#include "tests/testing/scratch_folder.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

// What a user brings: here, a loss whose gradient is the parameters' distance to 1.
void ComputeGradients(absl::Span<const float> parameters, absl::Span<float> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) gradients[i] = parameters[i] - 1;
}

// [ server/server.h
absl::Status ServeUntil(const std::string& config_path, std::stop_token stop) {
  ASSIGN_OR_RETURN(const PlannedConfig config, PlannedConfig::Load(config_path));
  const RealClock clock;
  ASSIGN_OR_RETURN(const std::unique_ptr<Server> server,
                   Server::Start({.config = &config, .shard = 0, .clock = &clock}));
  clock.SleepUntil(absl::InfiniteFuture(), stop);
  server->Shutdown();
  return absl::OkStatus();
}
// ]

// [ worker/exchange/grpc/exchange.h
absl::Status Train(const PlannedConfig& config, int rank, int64_t iterations) {
  ASSIGN_OR_RETURN(Exchange::Buffers buffers, Exchange::AllocateBuffers(config, {}));
  ASSIGN_OR_RETURN(const std::unique_ptr<Exchange> exchange,
                   Exchange::Connect({.config = &config, .rank = rank, .buffers = &buffers}));
  const absl::Span<float> parameters = buffers.parameters.span();
  const absl::Span<float> gradients = buffers.gradients.span();
  RETURN_IF_ERROR(exchange->Pull(parameters));
  for (int64_t i = exchange->next_iteration(); i < iterations; ++i) {
    ComputeGradients(parameters, gradients);
    RETURN_IF_ERROR(exchange->PushPull(i, gradients, parameters));
  }
  return exchange->Leave(absl::OkStatus());
}
// ]

// [ common/placement/plan/plan.h
absl::StatusOr<std::vector<int64_t>> BytesOfShards(const Model& model, int shards) {
  Partition partition;
  partition.set_scheme(Partition::STRIPED);
  ASSIGN_OR_RETURN(const Plan plan,
                   Plan::Create(model, partition, shards, /*chunk_bytes=*/64 << 10));
  std::vector<int64_t> bytes(shards);
  for (const Chunk& chunk : plan.chunks()) bytes[chunk.shard] += chunk.size * sizeof(float);
  return bytes;
}
// ]

}  // namespace

TEST_CASE("the examples train a model") {
  const ScratchFolder folder;
  const std::string path = folder.Write("run.textproto", R"(
    model {
      input { channels: 2 height: 1 width: 1 }
      layer { name: "fc" linear { out_features: 3 } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "unix:)" + folder.Path("0.sock") + R"(" }
    update { policy: SYNC }
    optimizer { kind: SGD learning_rate: 0.5 }
    training { iterations: 1 }
    compute { backend: EMULATED }
    limits { shutdown_seconds: 5 }
  )");
  absl::Status served = absl::UnknownError("did not run");
  {
    std::jthread shard([&](std::stop_token stop) { served = ServeUntil(path, stop); });
    const absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(path, {});
    REQUIRE(config.ok());
    const absl::Status trained = Train(*config, /*rank=*/0, /*iterations=*/20);
    INFO(trained.ToString());
    CHECK(trained.ok());
  }
  CHECK(served.ok());
}

TEST_CASE("the example of a plan adds up the bytes of each shard") {
  ModelSpec spec;
  spec.set_builtin("mnist_mlp");
  const absl::StatusOr<Model> model = Model::Create(spec);
  REQUIRE(model.ok());
  const absl::StatusOr<std::vector<int64_t>> bytes = BytesOfShards(*model, 3);
  REQUIRE(bytes.ok());
  REQUIRE(bytes->size() == 3);
  CHECK((*bytes)[0] + (*bytes)[1] + (*bytes)[2] == 13'002 * 4);
  for (const int64_t shard_bytes : *bytes) CHECK(shard_bytes > 13'002 * 4 / 6);
}

}  // namespace evenshard
