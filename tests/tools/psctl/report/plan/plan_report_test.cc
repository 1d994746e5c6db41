#include "tools/psctl/report/plan/plan_report.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/tools/psctl/report/plan/plan_fixture.h"

namespace evenshard {
namespace {

TEST_CASE("a layer-based report has the load of each shard and the bottleneck") {
  const PlanReport report = MakePlanReport(SmallConfig("scheme: LAYER_BASED"));
  CHECK(report.scheme == "LAYER_BASED ROUND_ROBIN");
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
  CHECK(report.scheme == "MEMORY_BASED");
  REQUIRE(report.shards.size() == 2);
  CHECK(report.shards[0].parameters + report.shards[1].parameters == 118);
  // Which 16 elements go to which side is the plan's affair; the cut is in or after a.
  CHECK(absl::StartsWith(report.shards[0].holds.front(), "a"));
  CHECK(report.shards[1].holds.back() == "b .. d");
  CHECK(report.ratio_to_balanced < 88.0 / 59);
}

TEST_CASE(
    "with rates, the bottleneck is the shard that is busy longest, and striping balances them") {
  const std::vector<std::string> rates = {"shard[0].link_gbps=30", "shard[1].link_gbps=100",
                                          "shard[1].server_gbps=10"};
  const PlanReport memory = MakePlanReport(SmallConfig("scheme: MEMORY_BASED", rates));
  CHECK(memory.bottleneck == 1);
  CHECK(memory.shards[0].gbps == 30);
  CHECK(memory.shards[1].gbps == 10);
  // Cut at 64 of 118: 54 elements are on the shard that has a quarter of the rate.
  CHECK(memory.ratio_to_balanced == Approx(54 / 10.0 / (118 / 40.0)));
  const PlanReport striped = MakePlanReport(SmallConfig("scheme: STRIPED", rates));
  CHECK(striped.scheme == "STRIPED");
  // Pieces of a model this small are 16 elements.
  CHECK(striped.shards[0].parameters == 86);
  CHECK(striped.ratio_to_balanced == Approx(32 / 10.0 / (118 / 40.0)));
}

TEST_CASE("what workers have in 16 bits travels so, and is float32 at the shards") {
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      "model { from_workers { tensor { name: 'a' shape: [64] type: BFLOAT16 }"
      "                       tensor { name: 'b' shape: [32] type: FLOAT16 }"
      "                       tensor { name: 'c' shape: [16] } } }"
      "optimizer { kind: SGD learning_rate: 1 } partition { scheme: MEMORY_BASED }"
      "shard { address: 'ps:0' } workers: 3 update { policy: SYNC }",
      "f");
  INFO(config.status());
  REQUIRE(config.ok());
  const PlanReport report = MakePlanReport(*config);
  CHECK(report.shards[0].bytes == 112 * 4);
  CHECK(report.shards[0].bytes_in == 3 * (64 * 2 + 32 * 4 + 16 * 4));
  CHECK(report.shards[0].bytes_out == 3 * (64 * 2 + 32 * 2 + 16 * 4));
}

TEST_CASE("under AUTO the report names the alternative that it chose") {
  const PlanReport report = MakePlanReport(
      SmallConfig("scheme: AUTO", {"shard[0].link_gbps=10", "shard[1].link_gbps=5"}));
  CHECK(report.scheme == "AUTO");
  CHECK_FALSE(report.partition.empty());
  CHECK(report.partition != "AUTO");
}

TEST_CASE("the worst stretch is part of the report") {
  // a alone has more than half of the elements, and is on one shard.
  const Stretch stretch = MakePlanReport(SmallConfig("scheme: LAYER_BASED")).worst_stretch;
  CHECK(stretch.first_layer == 0);
  CHECK(stretch.last_layer == 0);
  CHECK(stretch.elements == 68);
  CHECK(stretch.shard == 0);
  CHECK(stretch.ratio == Approx(2));
}

TEST_CASE("the prediction assumes the config's links, or one rate for all") {
  const std::vector<std::string> links = {"shard[0].link_gbps=4", "shard[1].link_gbps=2",
                                          "worker_link_gbps=1"};
  const PlannedConfig config = SmallConfig("scheme: LAYER_BASED", links);
  const PlanReport report = MakePlanReport(config);
  CHECK(report.worker_link_gbps == 1);
  CHECK(report.shards[0].link_gbps == 4);
  CHECK(report.shards[1].link_gbps == 2);
  CHECK(report.predicted_seconds >= report.bound_seconds);
  const PlanReport fast = MakePlanReport(config, 100);
  CHECK(fast.worker_link_gbps == 100);
  CHECK(fast.shards[1].link_gbps == 100);
  CHECK(fast.shards[1].gbps == 2);
  // 3 workers share the link of shard 0, which is 4 times as fast as a worker's; it decides then.
  CHECK(fast.bound_seconds < report.bound_seconds / 20);
  CHECK(MakePlanReport(SmallConfig("scheme: LAYER_BASED")).worker_link_gbps == 10);
}

TEST_CASE("the prediction has the computing of the config's device") {
  const PlanReport alone = MakePlanReport(SmallConfig("scheme: LAYER_BASED"));
  CHECK_FALSE(alone.computes);
  CHECK(alone.device == "none");
  const PlanReport report = MakePlanReport(
      SmallConfig("scheme: LAYER_BASED",
                  {"compute.emulated.device=cpu_epyc_2_threads", "training.batch_size=60000"}));
  CHECK(report.computes);
  CHECK(report.device == "cpu_epyc_2_threads");
  CHECK(report.bound_seconds > 10 * alone.bound_seconds);
  CHECK(report.predicted_seconds >= report.bound_seconds);
}

TEST_CASE("a worker's own link is the busiest when there are more shards than workers") {
  PlannedConfig config = SmallConfig("scheme: MEMORY_BASED");
  auto alone = PlannedConfig::Parse(config.proto().DebugString(), "alone", {"workers=1"});
  REQUIRE(alone.ok());
  CHECK(MakePlanReport(*alone).busiest_link_bytes == 118 * 4);
}

TEST_CASE("a plan counts bytes in the encoding of each direction") {
  PlannedConfig config = SmallConfig("scheme: LAYER_BASED");
  auto mixed = PlannedConfig::Parse(config.proto().DebugString(), "mixed",
                                    {"exchange.gradient_encoding=FLOAT16"});
  REQUIRE(mixed.ok());
  const ShardLoad load = MakePlanReport(*mixed).shards[0];
  CHECK(load.bytes == 352);
  CHECK(load.bytes_in == 3 * 176);
  CHECK(load.bytes_out == 3 * 352);
  auto half = PlannedConfig::Parse(mixed->proto().DebugString(), "half",
                                   {"exchange.parameter_encoding=BFLOAT16"});
  REQUIRE(half.ok());
  CHECK(MakePlanReport(*half).busiest_link_bytes == 3 * 176);
  auto few = PlannedConfig::Parse(config.proto().DebugString(), "few",
                                  {"exchange.gradient_encoding=INT4"});
  REQUIRE(few.ok());
  int64_t bytes = 0;
  for (const uint32_t id : few->plan().chunks_of_shard(0)) {
    const int64_t size = few->plan().chunks()[id].size;
    bytes += 2 * ((size + 63) / 64) + (size + 1) / 2;
  }
  CHECK(MakePlanReport(*few).shards[0].bytes_in == 3 * bytes);
}

TEST_CASE("layers that are split between shards are listed tensor by tensor") {
  const PlanReport report =
      MakePlanReport(SmallConfig("scheme: LAYER_BASED placement: TENSOR_ROUND_ROBIN"));
  CHECK(report.shards[0].holds ==
        std::vector<std::string>{"a/weight", "b/weight", "c/weight", "d/weight"});
  CHECK(report.shards[1].holds == std::vector<std::string>{"a/bias", "b/bias", "c/bias", "d/bias"});
}

}  // namespace
}  // namespace evenshard
