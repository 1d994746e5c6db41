// The exchange in 16 bits, over real gRPC connections in one process: what travels, how far
// the result is off, and what happens to values that 16 bits do not hold.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/status_macros.h"
#include "common/wire/encoding.h"
#include "grpcpp/create_channel.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/cluster.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr int kIterations = 4;

struct Directions {
  std::string gradient, parameter;
};

const std::vector<Directions> kDirections = {{"FLOAT16", "FLOAT32"},  {"FLOAT32", "FLOAT16"},
                                             {"BFLOAT16", "FLOAT32"}, {"FLOAT32", "BFLOAT16"},
                                             {"FLOAT16", "FLOAT16"},  {"BFLOAT16", "BFLOAT16"},
                                             {"FLOAT16", "BFLOAT16"}};

PlannedConfig ConfigFor(const Directions& directions, std::vector<std::string> overrides = {}) {
  overrides.push_back("exchange={gradient_encoding: " + directions.gradient +
                      " parameter_encoding: " + directions.parameter + "}");
  return MustParse(kSmallConfig, overrides);
}

Encoding GradientEncoding(const PlannedConfig& config) {
  return config.proto().exchange().gradient_encoding();
}
Encoding ParameterEncoding(const PlannedConfig& config) {
  return config.proto().exchange().parameter_encoding();
}

// What arrives of values that are sent in an encoding.
std::vector<float> Travelled(Encoding encoding, const std::vector<float>& values) {
  std::string bytes(EncodedBytes(encoding, values.size()), '\0');
  Encode(encoding, values, bytes.data());
  std::vector<float> arrived(values.size());
  Decode(encoding, {absl::MakeConstSpan(bytes)}, absl::MakeSpan(arrived));
  return arrived;
}

struct Trained {
  std::vector<float> masters;
  std::vector<float> received;  // by worker 0
};

// Trains with test gradients as every worker of the config.
Trained Train(const PlannedConfig& config) {
  TestCluster cluster(config);
  const Model& model = config.model();
  Trained trained;
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(model.buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    for (int i = 0; i < kIterations && status.ok(); ++i) {
      status = exchange.PushPull(i, TestGradient(model, rank, i), absl::MakeSpan(parameters));
    }
    if (rank == 0) trained.received = parameters;
    return status;
  }));
  trained.masters = cluster.Parameters();
  return trained;
}

}  // namespace

TEST_CASE("half-width runs are bit-equal under every placement, chunk size and shard count") {
  for (const Directions& directions : kDirections) {
    CAPTURE(directions.gradient, directions.parameter);
    std::vector<float> first;
    for (const std::string partition : {"{scheme: MEMORY_BASED}", "{scheme: LAYER_BASED}",
                                        "{scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN}"}) {
      for (const std::string chunk_bytes : {"192", "4096"}) {
        const Trained trained = Train(ConfigFor(
            directions, {"workers=3", "update.deterministic=true", "optimizer.kind=MOMENTUM",
                         "partition=" + partition, "limits.chunk_bytes=" + chunk_bytes}));
        if (first.empty()) first = trained.masters;
        REQUIRE(trained.masters == first);
      }
    }
  }
}

TEST_CASE("masters are float32 sums of the received gradients, and workers get them rounded") {
  for (const Directions& directions : kDirections) {
    CAPTURE(directions.gradient, directions.parameter);
    const PlannedConfig config = ConfigFor(directions, {"update.deterministic=true"});
    const Model& model = config.model();
    std::vector<float> expected = TestCluster(config).Parameters();
    for (int i = 0; i < kIterations; ++i) {
      std::vector<float> sum =
          Travelled(GradientEncoding(config), TestGradient(model, /*rank=*/0, i));
      const std::vector<float> other =
          Travelled(GradientEncoding(config), TestGradient(model, /*rank=*/1, i));
      for (size_t k = 0; k < sum.size(); ++k) {
        const float mean = 0.5f * (sum[k] + other[k]);
        const float step = config.proto().optimizer().learning_rate() * mean;
        expected[k] -= step;
      }
    }
    const Trained trained = Train(config);
    // A fused multiply-add in this test may differ from the shard in the last bit.
    for (size_t k = 0; k < expected.size(); ++k) {
      REQUIRE(trained.masters[k] == Approx(expected[k]).epsilon(1e-6).margin(1e-8));
    }
    REQUIRE(trained.received == Travelled(ParameterEncoding(config), trained.masters));
    if (ParameterEncoding(config) != FLOAT32) REQUIRE(trained.received != trained.masters);
  }
}

TEST_CASE("ASYNC workers exchange in half width, and both sides count the bytes on the wire") {
  for (const std::string policy : {"SYNC", "ASYNC"}) {
    const PlannedConfig config = ConfigFor({"BFLOAT16", "FLOAT16"}, {"update.policy=" + policy});
    TestCluster cluster(config);
    const Model& model = config.model();
    std::vector<Exchange::Traffic> counted(2);
    RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
      std::vector<float> parameters(model.buffer_size());
      absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
      for (int i = 0; i < kIterations && status.ok(); ++i) {
        status = exchange.PushPull(i, TestGradient(model, rank, i), absl::MakeSpan(parameters));
      }
      counted[rank] = exchange.traffic();
      return status;
    }));
    uint64_t bytes_in = 0, bytes_out = 0;
    for (int shard = 0; shard < 2; ++shard) {
      const ShardStats stats = cluster.server(shard).shard().Stats();
      CHECK(stats.failure().empty());
      bytes_in += stats.bytes_in();
      bytes_out += stats.bytes_out();
    }
    const uint64_t each_way = 2 * model.parameter_count() * kIterations;
    const uint64_t pulled = 4 * model.parameter_count();  // the first one, in full width
    for (const Exchange::Traffic& traffic : counted) {
      CHECK(traffic.bytes_out == each_way);
      CHECK(traffic.bytes_in == each_way);
    }
    CHECK(bytes_in == 2 * each_way);
    CHECK(bytes_out == 2 * (each_way + pulled));
  }
}

TEST_CASE("a Pull gives the exact masters unless it asks for another encoding") {
  TestCluster cluster(ConfigFor({"FLOAT16", "FLOAT16"}));
  const auto stub = ParameterServer::NewStub(
      grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()));
  const std::vector<float> masters = cluster.Parameters();
  for (const int asked : {int{FLOAT32}, int{FLOAT16}, int{BFLOAT16}, int{INT8}, 17}) {
    CAPTURE(asked);
    grpc::ClientContext context;
    PullRequest request;
    request.set_plan_fingerprint(cluster.config().plan().fingerprint());
    request.set_encoding(static_cast<Encoding>(asked));
    const auto reader = stub->Pull(&context, request);
    ParameterChunk message;
    int chunks = 0;
    for (; reader->Read(&message); ++chunks) {
      const Chunk& chunk = cluster.config().plan().chunks()[message.chunk()];
      const auto begin = masters.begin() + chunk.model_offset;
      std::string expected(EncodedBytes(message.encoding(), chunk.size), '\0');
      Encode(message.encoding(), std::vector<float>(begin, begin + chunk.size), expected.data());
      REQUIRE(message.encoding() == asked);
      REQUIRE(message.data() == expected);
    }
    const grpc::Status status = reader->Finish();
    if (asked == 17 || asked == INT8) {
      CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
      CHECK(status.error_message() == "the puller asks for " + EncodingName(asked) +
                                          "; shard 0 speaks FLOAT32, FLOAT16, BFLOAT16");
    } else {
      CHECK(status.ok());
      CHECK(chunks > 1);
    }
  }
}

TEST_CASE("a gradient that overflows float16 ends the run for all, and reaches no master") {
  TestCluster cluster(ConfigFor({"FLOAT16", "FLOAT32"}));
  const std::vector<float> before = cluster.Parameters();
  // They outlive the exchanges, which after an error may still send what they were lent.
  const std::vector<float> gradients[] = {std::vector<float>(before.size(), 0.0f),
                                          std::vector<float>(before.size(), 1e6f)};
  std::vector<float> parameters[] = {before, before};
  const std::vector<absl::Status> outcomes = cluster.RunWorkers([&](int rank, Exchange& exchange) {
    RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters[rank])));
    return exchange.PushPull(0, gradients[rank], absl::MakeSpan(parameters[rank]));
  });
  for (const absl::Status& outcome : outcomes) {
    CHECK_THAT(outcome.ToString(), Contains("worker 1 pushed a gradient that is not finite (or "
                                            "beyond 65504, the largest FLOAT16) at iteration 0"));
  }
  CHECK(cluster.Parameters() == before);
}

TEST_CASE("a parameter that overflows float16 is an error of the worker, which names it") {
  for (const std::string policy : {"SYNC", "ASYNC"}) {
    TestCluster cluster(ConfigFor({"FLOAT32", "FLOAT16"},
                                  {"update.policy=" + policy, "optimizer.learning_rate=1"}));
    // They outlive the exchanges, which after an error may still send what they were lent.
    const std::vector<float> gradient(cluster.config().model().buffer_size(), 1e6f);
    std::vector<float> parameters[] = {gradient, gradient};
    const std::vector<absl::Status> outcomes =
        cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
          RETURN_IF_ERROR(exchange.Pull(absl::MakeSpan(parameters[rank])));
          return exchange.PushPull(0, gradient, absl::MakeSpan(parameters[rank]));
        });
    const auto named = [](const absl::Status& outcome) {
      return outcome.ToString().find(
                 "it answered with a parameter that is not finite (or beyond "
                 "65504, the largest FLOAT16): fc") != std::string::npos;
    };
    CHECK(std::any_of(outcomes.begin(), outcomes.end(), named));
    for (const absl::Status& outcome : outcomes) CHECK_FALSE(outcome.ok());
    for (const float master : cluster.Parameters()) REQUIRE(std::isfinite(master));
  }
}

}  // namespace evenshard
