#include "worker/exchange/core/schedule_policy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "common/placement/planned_config.h"

namespace evenshard {
namespace {

PlannedConfig MakeConfig(const std::string& schedule, int connections) {
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      R"(
    model {
      input { channels: 16 height: 1 width: 1 }
      layer { name: "fc1" linear { out_features: 16 } }
      layer { name: "fc2" linear { out_features: 2 } }
    }
    partition { scheme: MEMORY_BASED }
    shard { address: "a:1" }
    shard { address: "b:2" }
    update { policy: SYNC }
    training { iterations: 1 }
    compute { backend: EMULATED }
    limits { chunk_bytes: 256 }
  )",
      "test",
      {"exchange.schedule=" + schedule, "limits.connections=" + std::to_string(connections)});
  if (!config.ok()) FAIL(config.status());
  return *std::move(config);
}

}  // namespace

TEST_CASE("each schedule says when gradients leave and where parameters are waited for") {
  const auto [name, early, in_forward, sorts] =
      GENERATE(table<std::string, bool, bool, bool>({{"SEQUENTIAL", false, false, false},
                                                     {"BACKWARD", true, false, false},
                                                     {"FULL", true, true, true}}));
  const PlannedConfig config = MakeConfig(name, 1);
  const SchedulePolicy policy(config);
  CHECK(policy.pushes_early() == early);
  CHECK(policy.waits_in_forward() == in_forward);
  CHECK(policy.sorts_at_end() == sorts);
  for (const Chunk& chunk : config.plan().chunks()) {
    if (!early) continue;
    CHECK_FALSE(policy.LastOfStream(chunk.id).has_value());
    CHECK_FALSE(policy.HoldsAnswer(chunk.id));
  }
}

TEST_CASE("under SEQUENTIAL each stream has a last chunk, and the answers to all others are held") {
  const int connections = GENERATE(1, 2, 8);
  const PlannedConfig config = MakeConfig("SEQUENTIAL", connections);
  const SchedulePolicy policy(config);
  for (int shard = 0; shard < config.shards(); ++shard) {
    const auto chunks = config.plan().chunks_of_shard(shard);
    std::vector<int> streams;
    for (const uint32_t chunk : chunks) {
      CHECK(policy.HoldsAnswer(chunk) == !policy.LastOfStream(chunk).has_value());
      if (policy.LastOfStream(chunk).has_value()) streams.push_back(*policy.LastOfStream(chunk));
    }
    // With fewer chunks than streams, some streams have none.
    const size_t most = std::min<size_t>(connections, chunks.size());
    REQUIRE(streams.size() == most);
    std::sort(streams.begin(), streams.end());
    for (size_t i = 0; i < most; ++i) CHECK(streams[i] == static_cast<int>(i));
    CHECK(policy.LastOfStream(chunks.back()) == 0);
  }
}

TEST_CASE("what is pushed early leaves at once, in the order of the pushes") {
  const PlannedConfig config = MakeConfig(GENERATE("BACKWARD", "FULL"), 1);
  const SchedulePolicy policy(config);
  std::vector<uint32_t> waiting = {7, 2, 5};
  CHECK(policy.Release(waiting, /*all_pushed=*/false, /*all_sent=*/false) ==
        std::vector<uint32_t>{7, 2, 5});
  CHECK(waiting.empty());
}

TEST_CASE("under SEQUENTIAL the whole gradient leaves in model order, and then the last chunks") {
  const PlannedConfig config = MakeConfig("SEQUENTIAL", 1);
  const SchedulePolicy policy(config);
  std::vector<uint32_t> waiting(config.plan().chunks().size());
  std::iota(waiting.rbegin(), waiting.rend(), 0);
  const size_t all = waiting.size();
  CHECK(policy.Release(waiting, /*all_pushed=*/false, /*all_sent=*/true).empty());
  const std::vector<uint32_t> first = policy.Release(waiting, /*all_pushed=*/true, true);
  CHECK(first.size() == all - config.shards());
  CHECK(std::is_sorted(first.begin(), first.end()));
  CHECK(policy.Release(waiting, /*all_pushed=*/true, /*all_sent=*/false).empty());
  const std::vector<uint32_t> last = policy.Release(waiting, /*all_pushed=*/true, true);
  REQUIRE(last.size() == static_cast<size_t>(config.shards()));
  for (const uint32_t chunk : last) CHECK(policy.LastOfStream(chunk).has_value());
  CHECK(waiting.empty());
}

}  // namespace evenshard
