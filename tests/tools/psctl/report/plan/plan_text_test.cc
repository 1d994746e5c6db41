#include "tools/psctl/report/plan/plan_text.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/psctl/report/plan/plan_fixture.h"
#include "tools/psctl/report/plan/plan_report.h"

namespace evenshard {
namespace {

TEST_CASE("the table of one plan shows its numbers and what they predict") {
  const std::string text = PlanText("small", SmallConfig("scheme: LAYER_BASED"));
  CHECK(text ==
        R"(small: LAYER_BASED ROUND_ROBIN
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
worst stretch  shard 0 carries 2.00 times its share
               (of a, 272 B)
predicted      2us per iteration, bound 1us
               (full, sync, links of 10 Gb/s)
               (the exchange alone: compute.emulated.device is "none")
)");
}

TEST_CASE("plans are compared side by side, and by their predicted times") {
  const std::vector<PlannedConfig> configs = {SmallConfig("scheme: LAYER_BASED"),
                                              SmallConfig("scheme: LAYER_BASED placement: GREEDY")};
  const std::string text = PlanComparison({"one", "two"}, configs);
  CHECK(absl::StrContains(text, "LAYER_BASED ROUND_ROBIN"));
  CHECK(absl::StrContains(text, "  |  LAYER_BASED GREEDY\n"));
  CHECK(absl::StrContains(text, "  |  predicted "));
  // Greedy: a on one shard (68 parameters), b, c and d on the other (50).
  CHECK(absl::StrContains(text, "\nThe prediction: LAYER_BASED GREEDY is 1."));
  CHECK(absl::EndsWith(text, " times as fast as LAYER_BASED ROUND_ROBIN.\n"));
}

TEST_CASE("plans of one placement are compared by images, under their names") {
  const std::string partition = "scheme: LAYER_BASED";
  const std::vector<PlannedConfig> configs = {SmallConfig(partition, {"training.batch_size=4"}),
                                              SmallConfig(partition, {"training.batch_size=12"})};
  const std::string text = PlanComparison({"one", "two"}, configs);
  CHECK(absl::EndsWith(text, "\nThe prediction: two is 3.00 times as fast as one.\n"));
}

TEST_CASE("the text says at which links the encodings pay, by what they take here") {
  const PlannedConfig config = SmallConfig(
      "scheme: STRIPED", {"exchange.gradient_encoding=INT4", "exchange.update_encoding=INT8"});
  const std::string text = PlanText("small", config);
  CHECK_THAT(text,
             Catch::Contains("\ngradients      INT4, 4.25 bits each, pay on links of up to "));
  CHECK_THAT(text,
             Catch::Contains(" ns each here, with one thread)\nupdates        INT8, 8.06 bits "));
  CHECK_FALSE(absl::StrContains(text, "parameters     "));
  const EncodingCost cost = MeasureEncoding(INT4);
  CHECK(cost.bits == 4.25);
  CHECK(cost.encode_nanoseconds > 0);
  CHECK(cost.decode_nanoseconds > 0);
  CHECK(cost.pays_below_gbps ==
        Approx(27.75 / (cost.encode_nanoseconds + cost.decode_nanoseconds)));
}

TEST_CASE("with rates, the text shows them, and the links and the device of the prediction") {
  const std::vector<std::string> overrides = {"shard[0].link_gbps=30", "shard[1].link_gbps=100",
                                              "worker_link_gbps=25", "training.batch_size=7",
                                              "compute.emulated.device=rtx_2080_ti"};
  const PlannedConfig config = SmallConfig("scheme: MEMORY_BASED", overrides);
  const std::string text = PlanText("small", config);
  CHECK(absl::StrContains(text, "Gb/s  parameters"));
  CHECK(absl::StrContains(text, "(full, sync, rtx_2080_ti, batch 7, workers' links of 25 Gb/s)\n"));
  CHECK_FALSE(absl::StrContains(text, "the exchange alone"));
  CHECK_FALSE(absl::StrContains(text, "AUTO weighed"));
  CHECK(absl::StrContains(PlanText("small", config, 40), "batch 7, links of 40 Gb/s)\n"));
}

TEST_CASE("clipping by norm shows in the prediction, which is longer for it") {
  const auto seconds = [](const PlannedConfig& config) {
    return MakePlanReport(config, std::nullopt).predicted_seconds;
  };
  const PlannedConfig clips = SmallConfig("scheme: MEMORY_BASED", {"update.clip_global_norm=1"});
  CHECK(absl::StrContains(PlanText("small", clips), "(full, sync, clipped by norm, links of "));
  CHECK(seconds(clips) > 1.1 * seconds(SmallConfig("scheme: MEMORY_BASED")));
}

TEST_CASE("a plan of one shard has no worst stretch") {
  auto alone = PlannedConfig::Parse(SmallConfig("scheme: MEMORY_BASED").proto().DebugString(),
                                    "alone", {"shard=[{address: '127.0.0.1:7001'}]"});
  INFO(alone.status().message());
  REQUIRE(alone.ok());
  CHECK_FALSE(absl::StrContains(PlanText("alone", *alone), "worst stretch"));
}

TEST_CASE("under AUTO the text lists what was weighed, with times or why there is no plan") {
  // LAYER_BASED has 4 layers for 5 shards.
  std::string shards = "shard=[{address: '127.0.0.1:1' link_gbps: 5}";
  for (int i = 2; i <= 5; ++i) {
    absl::StrAppend(&shards, ", {address: '127.0.0.1:", i, "' link_gbps: 10}");
  }
  const PlannedConfig config = SmallConfig("scheme: AUTO", {shards + "]"});
  const std::string text = PlanText("small", config);
  INFO(text);
  const PlanChoice& choice = config.plan_choice();
  const std::string chosen = choice.alternatives[choice.chosen].name;
  CHECK(absl::StartsWith(text, absl::StrCat("small: AUTO (", chosen, ")\n")));
  CHECK(absl::StrContains(text, "\nAUTO weighed "));
  CHECK(absl::StrContains(text, "1.00  chosen\n"));
  CHECK(absl::StrContains(text, "\nLAYER_BASED GREEDY "));
  CHECK(absl::StrContains(text,
                          "refused: the plan has 5 shards, but the model custom can fill 1 to "
                          "4 shards under LAYER_BASED GREEDY\n"));
  CHECK(absl::StrContains(
      PlanComparison({"one", "two"}, std::vector<PlannedConfig>{config, config}), "AUTO weighed "));
}

}  // namespace
}  // namespace evenshard
