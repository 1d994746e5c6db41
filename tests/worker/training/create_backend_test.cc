#include "worker/training/create_backend.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

using Catch::Matchers::Contains;

constexpr char kDropoutModel[] = R"(
    model {
      input { channels: 1 height: 4 width: 4 }
      layer { name: "fc1" linear { out_features: 100 } }
      layer { dropout {} }
      layer { name: "fc2" linear { out_features: 3 } }
    })";

PlannedConfig MakeConfig(const std::string& model, const std::vector<std::string>& overrides) {
  const std::string text = absl::StrCat(model, R"(
      partition { scheme: MEMORY_BASED }
      shard { address: "localhost:50051" }
      update { policy: SYNC }
      training { batch_size: 2 iterations: 1 }
      data { synthetic {} })");
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(text, "test", overrides);
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

struct Outcome {
  BatchResult result;
  std::vector<float> gradients;
};

// Runs one step with all images and parameters equal to 1.
Outcome RunStep(const PlannedConfig& config, int rank) {
  const RealClock clock;
  auto backend = CreateComputeBackend(config, {.rank = rank, .clock = &clock});
  if (!backend.ok()) FAIL(backend.status());
  const std::vector<float> images(2 * config.model().input().size(), 1.0f);
  const std::vector<int32_t> labels = {0, 1};
  const std::vector<float> parameters(config.model().buffer_size(), 1.0f);
  Outcome outcome;
  outcome.gradients.resize(config.model().buffer_size());
  LayerHooks hooks;
  auto result = (*backend)->ForwardBackward({2, images, labels}, parameters, 0,
                                            absl::MakeSpan(outcome.gradients), hooks);
  if (!result.ok()) FAIL(result.status());
  outcome.result = *result;
  return outcome;
}

TEST_CASE("the CPU backend is made for the config's batch size") {
  const PlannedConfig config = MakeConfig(kDropoutModel, {});
  const RealClock clock;
  auto backend = CreateComputeBackend(config, {.clock = &clock});
  REQUIRE(backend.ok());
  const std::vector<float> images(3 * 16);
  const std::vector<int32_t> labels(3);
  const std::vector<float> parameters(config.model().buffer_size());
  const auto result = (*backend)->Evaluate({3, images, labels}, parameters);
  CHECK_THAT(std::string(result.status().message()), Contains("made for 1 to 2"));
}

TEST_CASE("dropout follows the config's seed and the worker's rank") {
  const auto gradients = [](const std::string& seed, int rank) {
    return RunStep(MakeConfig(kDropoutModel, {"training.seed=" + seed}), rank).gradients;
  };
  CHECK(gradients("1", 0) == gradients("1", 0));
  CHECK(gradients("1", 0) != gradients("2", 0));
  CHECK(gradients("1", 0) != gradients("1", 1));
}

TEST_CASE("a worker has at least one thread, however many workers share the processors") {
  const PlannedConfig config = MakeConfig(kDropoutModel, {"compute.threads=0", "workers=500"});
  CHECK(RunStep(config, 499).result.loss > 0);
}

TEST_CASE("the emulated backend takes a shrunk model, which the CPU backend refuses") {
  const std::string model = "model { builtin: \"resnet152\" shrink: 16 }";
  const Outcome outcome = RunStep(MakeConfig(model, {"compute.backend=EMULATED"}), 0);
  CHECK(outcome.result.loss == 0);
  CHECK(outcome.gradients.front() != 0);
}

TEST_CASE("the emulated backend takes the time of the config's device, batch, dilation and rank") {
  const PlannedConfig config =
      MakeConfig("model { builtin: \"vgg16\" shrink: 64 }",
                 {"workers=3",
                  "compute={backend: EMULATED emulated {device: 'rtx_2080_ti' time_dilation: 10 "
                  "worker_slowdown: [1, 1.5]}}",
                  "training.batch_size=32"});
  const auto seconds = [&](int rank) {
    const FakeClock clock;
    auto backend = CreateComputeBackend(config, {.rank = rank, .clock = &clock});
    if (!backend.ok()) FAIL(backend.status());
    std::vector<float> gradients(config.model().buffer_size());
    LayerHooks hooks;
    const absl::Time start = clock.Now();
    REQUIRE((*backend)->ForwardBackward({}, gradients, 0, absl::MakeSpan(gradients), hooks).ok());
    return absl::ToDoubleSeconds(clock.Now() - start);
  };
  CHECK(seconds(0) == Approx(10 * 2 * 90.8e-3));
  CHECK(seconds(1) == Approx(1.5 * 10 * 2 * 90.8e-3));
  CHECK(seconds(2) == Approx(10 * 2 * 90.8e-3));
}

}  // namespace
}  // namespace evenshard
