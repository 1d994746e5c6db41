#include "tools/psctl/report/plan/plan_json.h"

#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/tools/psctl/report/plan/plan_fixture.h"

namespace evenshard {
namespace {

TEST_CASE("the slices in a plan's JSON add up to the model") {
  const std::vector<PlannedConfig> configs = {SmallConfig("scheme: MEMORY_BASED")};
  const auto json = nlohmann::json::parse(PlanJson({"small"}, configs), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  const auto& plan = json["plans"][0];
  CHECK(plan["config"] == "small");
  CHECK(plan["parameters"] == 118);
  CHECK(plan["workers"] == 3);
  CHECK(plan["scheme"] == "MEMORY_BASED");
  CHECK(plan["partition"] == "MEMORY_BASED");
  CHECK(plan["chunk_bytes"] == 16'384);
  CHECK(plan["chunk_bytes_reason"] == "smaller chunks would cost more than they gain");
  CHECK(plan["shards"][1]["address"] == "127.0.0.1:7002");
  int64_t elements = 0;
  for (const auto& shard : plan["shards"]) {
    CHECK(shard["bytes_in_per_iteration"] == 3 * shard["bytes"].get<int64_t>());
    for (const auto& slice : shard["slices"]) elements += slice["size"].get<int64_t>();
  }
  CHECK(elements == 118);
}

TEST_CASE("a plan's JSON has the worst stretch and the prediction") {
  const std::vector<PlannedConfig> configs = {SmallConfig("scheme: LAYER_BASED")};
  const auto json = nlohmann::json::parse(PlanJson({"small"}, configs, 5), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  const auto& plan = json["plans"][0];
  CHECK(plan["worst_stretch"]["first_layer"] == "a");
  CHECK(plan["worst_stretch"]["last_layer"] == "a");
  CHECK(plan["worst_stretch"]["bytes"] == 272);
  CHECK(plan["worst_stretch"]["shard"] == 0);
  CHECK(plan["worst_stretch"]["ratio"] == Approx(2));
  CHECK(plan["device"] == "none");
  CHECK(plan["worker_link_gbps"] == 5);
  CHECK(plan["shards"][1]["link_gbps"] == 5);
  CHECK(plan["shards"][1]["gbps"].is_null());
  CHECK(plan["bound_seconds"] > 0);
  CHECK(plan["predicted_seconds"] >= plan["bound_seconds"]);
  CHECK(plan["alternatives"].empty());
}

TEST_CASE("under AUTO a plan's JSON has what was weighed") {
  std::string shards = "shard=[{address: '127.0.0.1:1'}";
  for (int i = 2; i <= 5; ++i) absl::StrAppend(&shards, ", {address: '127.0.0.1:", i, "'}");
  const std::vector<PlannedConfig> configs = {SmallConfig("scheme: AUTO", {shards + "]"})};
  const auto json = nlohmann::json::parse(PlanJson({"small"}, configs), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  const auto& plan = json["plans"][0];
  const PlanChoice& choice = configs[0].plan_choice();
  CHECK(plan["scheme"] == "AUTO");
  CHECK(plan["partition"] == choice.alternatives[choice.chosen].name);
  REQUIRE(plan["alternatives"].size() == choice.alternatives.size());
  for (const auto& alternative : plan["alternatives"]) {
    CHECK(alternative.contains("seconds") != alternative.contains("refused"));
  }
}

}  // namespace
}  // namespace evenshard
