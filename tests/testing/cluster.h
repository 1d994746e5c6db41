#ifndef EVENSHARD_TESTS_TESTING_CLUSTER_H_
#define EVENSHARD_TESTS_TESTING_CLUSTER_H_

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "server/server.h"
#include "tests/testing/await.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {

// A SYNC config with a small model of tensors of many sizes, and every port 0. Tests add overrides.
inline constexpr char kSmallConfig[] = R"(
  model {
    input { channels: 40 height: 1 width: 1 }
    layer { name: "fc1" linear { out_features: 50 } }
    layer { relu {} }
    layer { name: "fc2" linear { out_features: 30 } }
    layer { relu {} }
    layer { name: "fc3" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  shard { address: "127.0.0.1:0" }
  workers: 2
  update { policy: SYNC }
  training { iterations: 1 }
  compute { backend: EMULATED }
  limits { chunk_bytes: 1024 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
)";

inline PlannedConfig MustParse(const std::string& text,
                               const std::vector<std::string>& overrides = {}) {
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(text, "test.textproto", overrides);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

// Runs all shards of a config in this process, and lets a test act as its workers.
class TestCluster {
 public:
  explicit TestCluster(PlannedConfig config) : config_(std::move(config)) {
    for (int shard = 0; shard < config_.shards(); ++shard) {
      absl::StatusOr<std::unique_ptr<Server>> server =
          Server::Start({.config = &config_, .shard = shard, .clock = &clock_});
      INFO(server.status().ToString());
      REQUIRE(server.ok());
      servers_.push_back(*std::move(server));
      addresses_.push_back(servers_.back()->address());
    }
  }

  const PlannedConfig& config() const { return config_; }
  Server& server(int shard) { return *servers_[shard]; }
  const std::vector<std::string>& addresses() const { return addresses_; }

  absl::StatusOr<std::unique_ptr<Exchange>> Connect(int rank) const {
    return Exchange::Connect({.config = &config_, .rank = rank, .addresses = addresses_});
  }

  // Returns the request with which a worker made by hand joins.
  JoinRequest RequestToJoin(int rank, uint64_t incarnation) const {
    JoinRequest request;
    request.set_worker(rank);
    request.set_incarnation(incarnation);
    request.set_config_fingerprint(config_.fingerprint());
    request.set_plan_fingerprint(config_.plan().fingerprint());
    request.set_plan_version(kPlanVersion);
    request.set_protocol_version(kProtocolVersion);
    return request;
  }

  // Runs `work` for all ranks at the same time, each on a thread and with an exchange of its own,
  // which then leaves with the outcome. Returns the outcomes by rank.
  std::vector<absl::Status> RunWorkers(
      const std::function<absl::Status(int rank, Exchange& exchange)>& work) {
    std::vector<absl::Status> outcomes(config_.workers(), absl::UnknownError("did not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < config_.workers(); ++rank) {
      threads.emplace_back([&, rank] {
        absl::StatusOr<std::unique_ptr<Exchange>> exchange = Connect(rank);
        if (!exchange.ok()) {
          outcomes[rank] = exchange.status();
          return;
        }
        outcomes[rank] = work(rank, **exchange);
        const absl::Status left = (*exchange)->Leave(outcomes[rank]);
        if (outcomes[rank].ok()) outcomes[rank] = left;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  // Returns the shards' current parameters in a worker's layout.
  std::vector<float> Parameters() const {
    std::vector<float> parameters(config_.model().buffer_size());
    for (size_t shard = 0; shard < servers_.size(); ++shard) {
      for (StoredChunk& chunk : servers_[shard]->shard().store().chunks()) {
        absl::MutexLock lock(&chunk.mutex);
        std::copy(chunk.parameters().begin(), chunk.parameters().end(),
                  parameters.begin() + chunk.info().model_offset);
      }
    }
    return parameters;
  }

 private:
  const PlannedConfig config_;
  const RealClock clock_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::string> addresses_;
};

// Returns a gradient in a worker's layout that differs by worker, iteration and element.
inline std::vector<float> TestGradient(const Model& model, int rank, int iteration) {
  std::vector<float> gradient(model.buffer_size());
  for (const Tensor& tensor : model.tensors()) {
    const CounterRandom random(rank * 1000 + iteration, tensor.name);
    for (int64_t i = 0; i < tensor.size; ++i) gradient[tensor.offset + i] = random.Normal(i);
  }
  return gradient;
}

inline void RequireAllOk(const std::vector<absl::Status>& outcomes) {
  for (const absl::Status& outcome : outcomes) {
    INFO(outcome.ToString());
    REQUIRE(outcome.ok());
  }
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_CLUSTER_H_
