// Clipping by the norm of the mean gradient, over gRPC: the slots of a run agree on it.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/testing/cluster.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/unix_shards.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

constexpr int kIterations = 3;

// Returns the parameters of the run at its end, by tensor, without the gaps between them.
std::map<std::string, std::vector<float>> ByTensor(const PlannedConfig& config,
                                                   const std::vector<float>& parameters) {
  std::map<std::string, std::vector<float>> found;
  for (const Tensor& tensor : config.model().tensors()) {
    const auto begin = parameters.begin() + tensor.offset;
    found[tensor.name] = {begin, begin + tensor.size};
  }
  return found;
}

std::map<std::string, std::vector<float>> Trained(const std::string& text,
                                                  const std::vector<std::string>& overrides) {
  TestCluster cluster(MustParse(text, overrides));
  const Model& model = cluster.config().model();
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    std::vector<float> parameters(model.buffer_size());
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters));
    for (int i = 0; i < kIterations && status.ok(); ++i) {
      status = exchange.PushPull(i, TestGradient(model, rank, i), absl::MakeSpan(parameters));
    }
    return status;
  }));
  return ByTensor(cluster.config(), cluster.Parameters());
}

// What one process computes, in double: SGD with learning rate 0.1 and decay 0.01.
std::map<std::string, std::vector<double>> Expected(const PlannedConfig& config, double max_norm) {
  TestCluster fresh(config);
  std::map<std::string, std::vector<double>> parameters;
  for (const auto& [name, values] : ByTensor(config, fresh.Parameters())) {
    parameters[name] = {values.begin(), values.end()};
  }
  for (int i = 0; i < kIterations; ++i) {
    std::map<std::string, std::vector<double>> mean;
    double squares = 0;
    for (const Tensor& tensor : config.model().tensors()) {
      std::vector<double>& of_tensor = mean[tensor.name];
      of_tensor.resize(tensor.size);
      for (int rank = 0; rank < config.workers(); ++rank) {
        const std::vector<float> gradient = TestGradient(config.model(), rank, i);
        for (int64_t k = 0; k < tensor.size; ++k) {
          of_tensor[k] += gradient[tensor.offset + k] / config.workers();
        }
      }
      for (const double element : of_tensor) squares += element * element;
    }
    const double coefficient = std::min(1.0, max_norm / (std::sqrt(squares) + 1e-6));
    for (auto& [name, values] : parameters) {
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] -= 0.1 * (coefficient * mean[name][k] + 0.01 * values[k]);
      }
    }
  }
  return parameters;
}

const std::vector<std::string> kSgd = {"optimizer.learning_rate=0.1",
                                       "optimizer.weight_decay=0.01"};

std::vector<std::string> Overrides(std::vector<std::string> first,
                                   const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

}  // namespace

TEST_CASE("clipping is that of one process, and every placement gives the same bits") {
  const int workers = GENERATE(1, 3);
  // The norm of the mean is about 62 for one worker, and 36 for three.
  const std::string max_norm = GENERATE("5", "1000");
  std::map<std::string, std::vector<float>> first;
  for (const int shards : {1, 2, 4}) {
    for (const std::string scheme : {"LAYER_BASED", "MEMORY_BASED", "STRIPED"}) {
      if (scheme == "LAYER_BASED" && shards > 3) continue;
      for (const std::string schedule : {"SEQUENTIAL", "FULL"}) {
        CAPTURE(workers, max_norm, shards, scheme, schedule);
        const UnixShards addresses(shards);
        const std::vector<std::string> overrides =
            Overrides(Overrides(kSgd, addresses.overrides()),
                      {absl::StrCat("workers=", workers), "update.clip_global_norm=" + max_norm,
                       "update.deterministic=true", "partition.scheme=" + scheme,
                       "exchange.schedule=" + schedule,
                       absl::StrCat("limits.chunk_bytes=", shards == 4 ? 128 : 4096),
                       absl::StrCat("exchange.shared_memory=", shards == 2 ? "true" : "false")});
        const auto trained = Trained(kSmallConfig, overrides);
        if (first.empty()) {
          first = trained;
          const UnixShards others(shards);
          const auto expected =
              Expected(MustParse(kSmallConfig, Overrides(overrides, others.overrides())),
                       std::stod(max_norm));
          for (const auto& [name, values] : trained) {
            for (size_t k = 0; k < values.size(); ++k) {
              REQUIRE(values[k] == Approx(expected.at(name)[k]).epsilon(1e-4).margin(1e-5));
            }
          }
        }
        for (const auto& [name, values] : trained) {
          CAPTURE(name);
          REQUIRE(std::memcmp(values.data(), first[name].data(), values.size() * sizeof(float)) ==
                  0);
        }
      }
    }
  }
}

TEST_CASE("running statistics are neither clipped nor counted, and do not wait for the norm") {
  const std::string model = absl::StrReplaceAll(
      kSmallConfig, {{"layer { relu {} }\n    layer { name: \"fc2\"",
                      "layer { name: \"n\" batch_norm {} }\n    layer { name: \"fc2\""}});
  const UnixShards addresses(2);
  const auto with = [&](const std::string& max_norm) {
    return Trained(model, Overrides(addresses.overrides(),
                                    {"update.clip_global_norm=" + max_norm,
                                     "update.deterministic=true", "optimizer.learning_rate=1"}));
  };
  const auto clipped = with("1");
  const auto whole = with("0");
  CHECK(clipped.at("n/running_mean") == whole.at("n/running_mean"));
  CHECK(clipped.at("fc1/weight") != whole.at("fc1/weight"));
}

TEST_CASE("a worker that skips does not count in the mean whose norm is clipped") {
  const UnixShards addresses(2);
  const auto overrides =
      Overrides(Overrides(kSgd, addresses.overrides()), {"update.clip_global_norm=5"});
  TestCluster cluster(MustParse(kSmallConfig, overrides));
  const Model& model = cluster.config().model();
  const std::vector<float> before = cluster.Parameters();
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) -> absl::Status {
    std::vector<float> parameters(model.buffer_size());
    const std::vector<float> gradient = TestGradient(model, rank, 0);
    return exchange.PushPull(0, absl::MakeSpan(gradient).first(rank == 0 ? gradient.size() : 0),
                             absl::MakeSpan(parameters));
  }));
  const std::vector<float> after = cluster.Parameters();
  double squares = 0;
  for (const Tensor& tensor : model.tensors()) {
    for (int64_t i = tensor.offset; i < tensor.offset + tensor.size; ++i) {
      squares += std::pow((before[i] - after[i]) / 0.1 - 0.01 * before[i], 2);
    }
  }
  CHECK(std::sqrt(squares) == Approx(5).epsilon(1e-3));
}

TEST_CASE("a gradient that is not finite ends the run at every shard") {
  const UnixShards addresses(2);
  TestCluster cluster(MustParse(
      kSmallConfig, Overrides(addresses.overrides(),
                              {"update.clip_global_norm=5", "limits.exchange_seconds=20"})));
  const Model& model = cluster.config().model();
  // By rank, and in use until the workers have left.
  std::vector<std::vector<float>> gradients, parameters;
  for (int rank = 0; rank < cluster.config().proto().workers(); ++rank) {
    gradients.push_back(TestGradient(model, rank, 0));
    gradients.back()[model.tensors().back().offset] = std::numeric_limits<float>::max();
    parameters.emplace_back(model.buffer_size());
  }
  const std::vector<absl::Status> outcomes = cluster.RunWorkers([&](int rank, Exchange& exchange) {
    return exchange.PushPull(0, gradients[rank], absl::MakeSpan(parameters[rank]));
  });
  for (const absl::Status& outcome : outcomes) {
    CHECK_THAT(std::string(outcome.message()),
               Catch::Contains("the sum of the gradients leaves the range of float32"));
  }
}

TEST_CASE("a shard that the others must find has no port 0") {
  const PlannedConfig config = MustParse(kSmallConfig, {"update.clip_global_norm=5"});
  const RealClock clock;
  const auto server = Server::Start({.config = &config, .shard = 1, .clock = &clock});
  CHECK(absl::IsInvalidArgument(server.status()));
  CHECK_THAT(std::string(server.status().message()),
             Catch::Contains("shard[0].address: is \"127.0.0.1:0\" with update.clip_global_norm, "
                             "and the other shards must find it, allowed: a port above 0"));
}

}  // namespace evenshard
