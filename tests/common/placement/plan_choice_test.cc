#include "common/placement/plan_choice.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/config/config_fixture.h"

namespace evenshard {
namespace {

const Overrides kEvenRates = {"shard[0].link_gbps=10", "shard[1].link_gbps=10"};
const Overrides kUnevenRates = {"shard[0].link_gbps=10", "shard[1].link_gbps=2.5"};

// Returns kConfig under AUTO, on a device, with more overrides.
PlannedConfig Automatic(const Overrides& more = {}) {
  Overrides overrides = {"partition={scheme: AUTO}", "compute.profile=rtx_2080_ti"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return Valid(kConfig, overrides);
}

std::vector<std::string> Names(const PlanChoice& choice) {
  std::vector<std::string> names;
  for (const PlanAlternative& alternative : choice.alternatives) names.push_back(alternative.name);
  return names;
}

TEST_CASE("a scheme other than AUTO is kept, with its plan and without alternatives") {
  for (const std::string partition :
       {"scheme: LAYER_BASED placement: ROUND_ROBIN", "scheme: LAYER_BASED placement: GREEDY",
        "scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN", "scheme: MEMORY_BASED",
        "scheme: STRIPED"}) {
    CAPTURE(partition);
    Overrides overrides = kUnevenRates;
    overrides.push_back(absl::StrCat("partition={", partition, "}"));
    const PlannedConfig config = Valid(kConfig, overrides);
    const PlanChoice& choice = config.plan_choice();
    CHECK(choice.partition.SerializeAsString() == config.proto().partition().SerializeAsString());
    CHECK(choice.alternatives.empty());
    // Only STRIPED goes by the rates.
    const bool by_rates = partition == "scheme: STRIPED";
    const absl::StatusOr<Plan> plan =
        Plan::Create(config.model(), config.proto().partition(), 2, choice.chunk_bytes,
                     by_rates ? std::vector<double>{10, 2.5} : std::vector<double>());
    REQUIRE(plan.ok());
    CHECK(choice.plan.fingerprint() == plan->fingerprint());
  }
}

TEST_CASE("AUTO weighs every scheme, by the shards' rates and also evenly where they differ") {
  const std::vector<std::string> names = {"STRIPED", "MEMORY_BASED", "LAYER_BASED GREEDY",
                                          "LAYER_BASED ROUND_ROBIN",
                                          "LAYER_BASED TENSOR_ROUND_ROBIN"};
  CHECK(Names(Automatic().plan_choice()) == names);
  std::vector<std::string> by_rates = names;
  for (int i = 0; i < 3; ++i) by_rates[i] += " by rates";
  CHECK(Names(Automatic(kEvenRates).plan_choice()) == by_rates);
  by_rates.insert(by_rates.end(), names.begin(), names.begin() + 3);
  CHECK(Names(Automatic(kUnevenRates).plan_choice()) == by_rates);
}

TEST_CASE("AUTO takes the first of the fastest, and its plan is that alternative's") {
  for (const Overrides& rates : {Overrides(), kEvenRates, kUnevenRates}) {
    for (const char* model : {"{builtin: 'alexnet'}", "{builtin: 'mnist_mlp'}"}) {
      CAPTURE(rates, model);
      Overrides overrides = rates;
      overrides.insert(overrides.end(), {absl::StrCat("model=", model), "data={synthetic {}}"});
      const PlannedConfig config = Automatic(overrides);
      const PlanChoice& choice = config.plan_choice();
      const PlanAlternative& chosen = choice.alternatives[choice.chosen];
      for (int i = 0; i < static_cast<int>(choice.alternatives.size()); ++i) {
        CAPTURE(i);
        const PlanAlternative& other = choice.alternatives[i];
        CHECK(other.refused.empty());
        CHECK(other.seconds > 0);
        CHECK(other.seconds >= 0.995 * chosen.seconds);
        if (i < choice.chosen) CHECK(chosen.seconds < 0.995 * other.seconds);
      }
      const bool by_rates = absl::EndsWith(chosen.name, " by rates");
      CHECK(chosen.name == PartitionName(choice.partition) + (by_rates ? " by rates" : ""));
      const absl::StatusOr<Plan> plan =
          Plan::Create(config.model(), choice.partition, 2, choice.chunk_bytes,
                       by_rates ? std::vector<double>{10, rates == kEvenRates ? 10 : 2.5}
                                : std::vector<double>());
      REQUIRE(plan.ok());
      CHECK(config.plan().fingerprint() == plan->fingerprint());
    }
  }
}

TEST_CASE("AUTO cuts by rates where links are what takes time") {
  Overrides overrides = kUnevenRates;
  overrides.insert(overrides.end(), {"model={builtin: 'alexnet'}", "data={synthetic {}}"});
  const PlannedConfig config = Automatic(overrides);
  const PlanChoice& choice = config.plan_choice();
  CHECK(choice.alternatives[choice.chosen].name == "STRIPED by rates");
  CHECK(choice.alternatives[0].seconds < 0.6 * choice.alternatives[5].seconds);
  CHECK(config.plan().shard_parameters(0) > 3 * config.plan().shard_parameters(1));
}

TEST_CASE("a scheme that has no plan is an alternative that was refused, with the reason") {
  const PlannedConfig config =
      Automatic({"shard=[{address: 'a:1'}, {address: 'a:2'}, {address: 'a:3'}]"});
  const PlanChoice& choice = config.plan_choice();
  REQUIRE(choice.alternatives.size() == 5);
  for (const int i : {0, 1, 4}) CHECK(choice.alternatives[i].refused.empty());
  CHECK(choice.alternatives[3].refused ==
        "the plan has 3 shards, but the model custom can fill 1 to 2 shards under LAYER_BASED "
        "ROUND_ROBIN; every shard must own parameters (`shard` in the config, --shards of "
        "`evenshard run`)");
  CHECK(absl::StrContains(choice.alternatives[2].refused, "under LAYER_BASED GREEDY"));
  CHECK(choice.alternatives[2].seconds == 0);
}

TEST_CASE("if no scheme has a plan, the error is that of STRIPED") {
  CHECK(ErrorOf(kConfig, {"partition={scheme: AUTO}", "compute.profile=none",
                          "model={input {channels: 1 height: 1 width: 1} layer {name: 'l' linear "
                          "{out_features: 1 bias: false}}}",
                          "data={synthetic {}}"}) ==
        "--set partition={scheme: AUTO}: shard: the plan has 2 shards, but the model custom can "
        "fill 1 to 1 shards under "
        "STRIPED; every shard must own parameters (`shard` in the config, --shards of `evenshard "
        "run`)");
}

TEST_CASE("AUTO goes by the device, the schedule, the policy, the encodings and all rates") {
  const auto seconds = [](const Overrides& overrides) {
    return Automatic(overrides).plan_choice().alternatives[0].seconds;
  };
  const double base = seconds({});
  for (const std::string override : {"compute.profile=none", "exchange.schedule=SEQUENTIAL",
                                     "exchange.gradient_encoding=FLOAT16", "worker_link_gbps=1",
                                     "training.batch_size=64", "workers=5"}) {
    CAPTURE(override);
    CHECK(seconds({override}) != base);
  }
  // With ASYNC each gradient is answered, so that both directions are busy at the same time.
  CHECK(seconds({"update.policy=ASYNC"}) <= base);
}

TEST_CASE("AUTO decides alike in every process, whatever these may differ in") {
  const PlanChoice expected = Automatic(kUnevenRates).plan_choice();
  for (const std::string override :
       {"", "limits.connections=1", "limits.connections=16", "shard[0].address=other:1",
        "compute.threads=7", "limits.window_bytes=65536", "limits.lead_bytes=0",
        "exchange.shared_memory=false"}) {
    CAPTURE(override);
    Overrides overrides = kUnevenRates;
    if (!override.empty()) overrides.push_back(override);
    const PlannedConfig config = Automatic(overrides);
    const PlanChoice& choice = config.plan_choice();
    CHECK(choice.plan.fingerprint() == expected.plan.fingerprint());
    CHECK(choice.chosen == expected.chosen);
    REQUIRE(choice.alternatives.size() == expected.alternatives.size());
    for (size_t i = 0; i < expected.alternatives.size(); ++i) {
      CHECK(choice.alternatives[i].name == expected.alternatives[i].name);
      CHECK(choice.alternatives[i].seconds == expected.alternatives[i].seconds);
    }
  }
}

}  // namespace
}  // namespace evenshard
