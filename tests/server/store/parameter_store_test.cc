#include "server/store/parameter_store.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "common/placement/planned_config.h"

namespace evenshard {
namespace {

PlannedConfig MakeConfig(const std::string& optimizer, std::vector<std::string> overrides = {}) {
  constexpr char kText[] = R"(
    model {
      input { channels: 2 height: 3 width: 3 }
      layer { name: "norm" batch_norm {} }
      layer { name: "fc1" linear { out_features: 4 } }
      layer { name: "fc2" linear { out_features: 3 } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "127.0.0.1:0" }
    update { policy: ASYNC }
    training { iterations: 1 }
    compute { backend: EMULATED }
  )";
  overrides.push_back("optimizer={" + optimizer + "}");
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(kText, "test.textproto", overrides);
  INFO(config.status().ToString());
  REQUIRE(config.ok());
  return *std::move(config);
}

TEST_CASE("a tensor is updated by the rule that counts for it, at the schedule's rate") {
  const PlannedConfig config = MakeConfig(R"(
    learning_rate: 1
    weight_decay: 0.5
    schedule { kind: STEP step_iterations: 1 gamma: 0.5 }
    rule { tensors: "*/bias" weight_decay: 0 }
    rule { tensors: "fc2/*" tensors: "norm/*" learning_rate: 0.25 }
  )");
  auto store = ParameterStore::Create(config, 0);
  REQUIRE(store.ok());
  std::map<std::string, float> updated;
  for (StoredChunk& chunk : (*store)->chunks()) {
    absl::MutexLock lock(&chunk.mutex);
    const absl::Span<float> parameters = chunk.mutable_array(0);
    std::fill(parameters.begin(), parameters.end(), 8.0f);
    const std::vector<float> gradient(parameters.size(), 2.0f);
    const Segments data = {
        {reinterpret_cast<const char*>(gradient.data()), gradient.size() * sizeof(float)}};
    REQUIRE(chunk.ApplyGradient(data, FLOAT32, /*scale=*/1, {.iteration = 1}).ok());
    updated[config.model().tensors()[chunk.info().tensor].name] = parameters[0];
    CHECK(std::count(parameters.begin(), parameters.end(), parameters[0]) ==
          static_cast<int64_t>(parameters.size()));
  }
  CHECK(updated == std::map<std::string, float>{
                       {"fc1/weight", 8 - 0.5f * (2 + 0.5f * 8)},
                       {"fc1/bias", 8 - 0.5f * 2},
                       {"fc2/weight", 8 - 0.5f * 0.25f * (2 + 0.5f * 8)},
                       {"fc2/bias", 8 - 0.5f * 2},
                       {"norm/weight", 8 - 0.5f * 0.25f * (2 + 0.5f * 8)},
                       {"norm/bias", 8 - 0.5f * 2},
                       // Running statistics are subtracted from as they are.
                       {"norm/running_mean", 8 - 2.0f},
                       {"norm/running_var", 8 - 2.0f},
                   });
}

TEST_CASE("an update that its encoding cannot say ends the run") {
  const PlannedConfig config =
      MakeConfig("learning_rate: 1", {"update.policy=SYNC", "exchange.update_encoding=INT8"});
  auto store = ParameterStore::Create(config, 0);
  REQUIRE(store.ok());
  StoredChunk& chunk = (*store)->chunks().back();
  absl::MutexLock lock(&chunk.mutex);
  std::fill_n(chunk.mutable_array(0).begin(), chunk.info().size, 0.0f);
  std::vector<float> gradient(chunk.info().size, 1.0f);
  gradient[1] = 2e38f;  // finite, as is what it leads to; but beyond the scale of a group
  const Segments data = {
      {reinterpret_cast<const char*>(gradient.data()), gradient.size() * sizeof(float)}};
  const absl::Status status = chunk.ApplyGradient(data, FLOAT32, /*scale=*/1, {.iteration = 1});
  CHECK(absl::IsOutOfRange(status));
}

TEST_CASE("tensors with a rule have the state of the optimizer's kind") {
  const PlannedConfig config = MakeConfig("kind: ADAMW rule { tensors: '*/bias' beta1: 0.5 }");
  auto store = ParameterStore::Create(config, 0);
  REQUIRE(store.ok());
  for (const StoredChunk& chunk : (*store)->chunks()) {
    const Tensor& tensor = config.model().tensors()[chunk.info().tensor];
    INFO(tensor.name);
    CHECK(chunk.arrays() == (tensor.role == TensorRole::kParameter ? 3 : 1));
  }
}

}  // namespace
}  // namespace evenshard
