#include "tools/psctl/plan_report.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace ps {
namespace {

// 4 layers of 68, 20, 20 and 10 parameters, for 3 workers and 2 shards.
Config SmallConfig(const std::string& partition, const std::vector<std::string>& overrides = {}) {
  auto config = Config::Parse(absl::StrCat(R"pb(
                                             model {
                                               input { channels: 1 height: 4 width: 4 }
                                               layer {
                                                 name: "a"
                                                 linear { out_features: 4 }
                                               }
                                               layer {
                                                 name: "b"
                                                 linear { out_features: 4 }
                                               }
                                               layer {
                                                 name: "c"
                                                 linear { out_features: 4 }
                                               }
                                               layer {
                                                 name: "d"
                                                 linear { out_features: 2 }
                                               }
                                             }
                                             shard { address: "127.0.0.1:7001" }
                                             shard { address: "127.0.0.1:7002" }
                                             workers: 3
                                             update { policy: SYNC }
                                             training { iterations: 1 }
                                             compute { backend: EMULATED }
                                             partition {)pb",
                                           partition, "}"),
                              "small", overrides);
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *std::move(config);
}

TEST_CASE("a layer-based report has the load of each shard and the bottleneck") {
  const PlanReport report = MakePlanReport(SmallConfig("scheme: LAYER_BASED"));
  CHECK(report.scheme == "layer-based, round_robin");
  REQUIRE(report.shards.size() == 2);
  CHECK(report.shards[0].parameters == 88);
  CHECK(report.shards[0].bytes == 352);
  CHECK(report.shards[0].bytes_each_way == 3 * 352);
  CHECK(report.shards[0].share == Approx(88.0 / 118));
  CHECK(report.shards[0].holds == std::vector<std::string>{"a", "c"});
  CHECK(report.shards[0].largest_layer == "a");
  CHECK(report.shards[0].largest_layer_share == Approx(68.0 / 88));
  CHECK(report.shards[1].parameters == 30);
  CHECK(report.shards[1].holds == std::vector<std::string>{"b", "d"});
  CHECK(report.bottleneck == 0);
  CHECK(report.ratio_to_balanced == Approx(88.0 / 59));
  CHECK(report.busiest_link_bytes == 3 * 352);
}

TEST_CASE("a memory-based report lists element ranges, and joins consecutive whole layers") {
  const PlanReport report = MakePlanReport(SmallConfig("scheme: MEMORY_BASED"));
  CHECK(report.scheme == "memory-based");
  REQUIRE(report.shards.size() == 2);
  CHECK(report.shards[0].parameters + report.shards[1].parameters == 118);
  // Which 16 elements go to which side is the plan's affair; the cut is in or after a.
  CHECK(absl::StartsWith(report.shards[0].holds.front(), "a"));
  CHECK(report.shards[1].holds.back() == "b .. d");
  CHECK(report.ratio_to_balanced < 88.0 / 59);
}

TEST_CASE("with rates, the bottleneck is the shard that is busy longest, and AUTO balances them") {
  const std::vector<std::string> rates = {"shard[0].link_gbps=30", "shard[1].link_gbps=100",
                                          "shard[1].server_gbps=10"};
  const PlanReport memory = MakePlanReport(SmallConfig("scheme: MEMORY_BASED", rates));
  CHECK(memory.bottleneck == 1);
  CHECK(memory.shards[0].gbps == 30);
  CHECK(memory.shards[1].gbps == 10);
  // Cut at 64 of 118: 54 elements are on the shard that has a quarter of the rate.
  CHECK(memory.ratio_to_balanced == Approx(54 / 10.0 / (118 / 40.0)));
  const PlanReport automatic = MakePlanReport(SmallConfig("scheme: AUTO", rates));
  CHECK(automatic.scheme == "auto");
  // Pieces of a model this small are 16 elements.
  CHECK(automatic.shards[0].parameters == 86);
  CHECK(automatic.ratio_to_balanced == Approx(32 / 10.0 / (118 / 40.0)));
  CHECK(MakePlanReport(SmallConfig("scheme: STRIPED", rates)).scheme == "striped");

  const std::string text =
      PlanComparison({"one", "two"},
                     std::vector<Config>{SmallConfig("scheme: MEMORY_BASED", rates),
                                         SmallConfig("scheme: AUTO", rates)},
                     10);
  CHECK(absl::StrContains(text, "MEMORY-BASED"));
  CHECK(absl::StrContains(text, "AUTO\n"));
  CHECK(absl::StrContains(text, "shard  Gb/s  parameters"));
  // For 3 workers, 54 elements at 10 Gb/s; beside all 118 through a worker's link, at 10 Gb/s.
  CHECK(absl::StrContains(text, "\nauto exchanges at most 1.37 times as fast as memory-based.\n"));
}

TEST_CASE("a worker's own link is the busiest when there are more shards than workers") {
  Config config = SmallConfig("scheme: MEMORY_BASED");
  auto alone = Config::Parse(config.proto().DebugString(), "alone", {"workers=1"});
  REQUIRE(alone.ok());
  CHECK(MakePlanReport(*alone).busiest_link_bytes == 118 * 4);
}

TEST_CASE("a plan counts bytes in the encoding of each direction") {
  Config config = SmallConfig("scheme: LAYER_BASED");
  auto mixed =
      Config::Parse(config.proto().DebugString(), "mixed", {"exchange.gradient_encoding=FLOAT16"});
  REQUIRE(mixed.ok());
  const ShardLoad load = MakePlanReport(*mixed).shards[0];
  CHECK(load.bytes == 352);
  CHECK(load.bytes_in == 3 * 176);
  CHECK(load.bytes_out == 3 * 352);
  auto half =
      Config::Parse(mixed->proto().DebugString(), "half", {"exchange.parameter_encoding=BFLOAT16"});
  REQUIRE(half.ok());
  CHECK(MakePlanReport(*half).busiest_link_bytes == 3 * 176);
}

TEST_CASE("layers that are split between shards are listed tensor by tensor") {
  const PlanReport report =
      MakePlanReport(SmallConfig("scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN"));
  CHECK(report.shards[0].holds ==
        std::vector<std::string>{"a/weight", "b/weight", "c/weight", "d/weight"});
  CHECK(report.shards[1].holds == std::vector<std::string>{"a/bias", "b/bias", "c/bias", "d/bias"});
}

TEST_CASE("the table of one plan shows its numbers and what they predict") {
  const std::string text = PlanText("small", SmallConfig("scheme: LAYER_BASED"), 10);
  CHECK(text ==
        R"(small: layer-based, round_robin
custom on 2 shards for 3 workers
118 parameters, 472 B, 8 chunks
chunks of at most 16,384 B: smaller chunks would cost more than they gain

shard  address         parameters  bytes   share  in/iteration  out/iteration  holds
    0  127.0.0.1:7001          88  352 B   74.6%       1.06 kB        1.06 kB  a, c
    1  127.0.0.1:7002          30  120 B   25.4%         360 B          360 B  b, d
total                         118  472 B  100.0%       1.42 kB        1.42 kB

bottleneck     shard 0, 1.49 times its load in a balanced plan
               (a is 77.3% of it)
busiest link   1.06 kB each way per iteration
at 10 Gb/s     1us per iteration or more
)");
}

TEST_CASE("plans are compared side by side, with the largest possible gain of the better one") {
  const std::vector<Config> configs = {SmallConfig("scheme: LAYER_BASED"),
                                       SmallConfig("scheme: LAYER_BASED placement: GREEDY")};
  const std::string text = PlanComparison({"one", "two"}, configs, 10);
  CHECK(absl::StrContains(text, "LAYER-BASED, ROUND_ROBIN"));
  CHECK(absl::StrContains(text, "  |  LAYER-BASED, GREEDY\n"));
  // Greedy: a on one shard (68 parameters), b, c and d on the other (50).
  CHECK(absl::StrContains(text,
                          "\nlayer-based, greedy exchanges at most 1.29 times as fast as "
                          "layer-based, round_robin.\n"));
}

TEST_CASE("the slices in a plan's JSON add up to the model") {
  const std::vector<Config> configs = {SmallConfig("scheme: MEMORY_BASED")};
  const auto json = nlohmann::json::parse(PlanJson({"small"}, configs, 10), nullptr, false);
  REQUIRE_FALSE(json.is_discarded());
  const auto& plan = json["plans"][0];
  CHECK(plan["config"] == "small");
  CHECK(plan["parameters"] == 118);
  CHECK(plan["workers"] == 3);
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

}  // namespace
}  // namespace ps
