#include "server/summary.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/base/text.h"

namespace evenshard {
namespace {

TEST_CASE("a shard logs what AUTO chose, and the prediction for all that it weighed") {
  // More shards than LAYER_BASED can fill.
  const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      R"(model {
           input { channels: 40 height: 1 width: 1 }
           layer { name: "a" linear { out_features: 80 bias: false } }
           layer { name: "b" linear { out_features: 10 bias: false } }
         }
         partition { scheme: AUTO }
         shard { address: "127.0.0.1:1" }
         shard { address: "127.0.0.1:2" }
         shard { address: "127.0.0.1:3" }
         update { policy: SYNC }
         training { iterations: 1 }
         compute { backend: EMULATED })",
      "f");
  INFO(config.status().message());
  REQUIRE(config.ok());
  const PlanChoice& choice = config->plan_choice();
  const PlanAlternative& chosen = choice.alternatives[choice.chosen];
  const std::string text = AutoChoice(*config);
  INFO(text);
  CHECK(absl::StartsWith(text, "AUTO chose " + chosen.name + ": " + FormatSeconds(chosen.seconds) +
                                   " an iteration predicted ("));
  CHECK(absl::StrContains(text, "LAYER_BASED GREEDY impossible"));
  for (const PlanAlternative& other : choice.alternatives) {
    CHECK(absl::StrContains(text, other.name));
  }
  // The chosen one is not among the others.
  CHECK_FALSE(absl::StrContains(text.substr(text.find('(')), chosen.name + " "));
}

TEST_CASE("the summary says how many gradients were limited if any were") {
  ShardStats stats;
  stats.set_pushes(1200);
  stats.set_skipped_pushes(3);
  CHECK(absl::StartsWith(Summary(stats), "1,200 pushes (0 repeated, 3 skipped) and 0 pulls, "));
  stats.set_limited_pushes(7);
  CHECK(absl::StartsWith(Summary(stats), "1,200 pushes (0 repeated, 3 skipped, 7 limited) and "));
}

}  // namespace
}  // namespace evenshard
