#include "server/store/shard_counters.h"

#include <catch2/catch.hpp>
#include <limits>

namespace evenshard {

TEST_CASE("staleness falls into buckets 0, 1, 2, 3, 4-7, 8-15 and so on") {
  ShardCounters counters;
  for (const uint64_t staleness : {0u, 0u, 1u, 3u, 4u, 7u, 8u, 15u, 16u}) {
    counters.CountStaleness(staleness);
  }
  counters.CountStaleness(std::numeric_limits<uint64_t>::max());
  ShardStats stats;
  counters.Fill(&stats);
  struct Expected {
    uint64_t from, to, pushes;
  };
  const Expected expected[] = {{0, 0, 2}, {1, 1, 1}, {3, 3, 1}, {4, 7, 2}, {8, 15, 2}, {16, 31, 1}};
  REQUIRE(stats.staleness_size() == 7);
  for (int i = 0; i < 6; ++i) {
    CAPTURE(i);
    CHECK(stats.staleness(i).from() == expected[i].from);
    CHECK(stats.staleness(i).to() == expected[i].to);
    CHECK(stats.staleness(i).pushes() == expected[i].pushes);
  }
  CHECK(stats.staleness(6).to() == std::numeric_limits<uint64_t>::max());
  CHECK(stats.staleness(6).pushes() == 1);
}

TEST_CASE("counters reach the statistics' fields of the same names") {
  ShardCounters counters;
  counters.received.Add(PushOutcome::kCounted, 1);
  for (int i = 0; i < 2; ++i) counters.received.Add(PushOutcome::kRepeated, 2);
  for (int i = 0; i < 3; ++i) counters.received.Add(PushOutcome::kSkipped, 0);
  for (int i = 0; i < 4; ++i) counters.CountReply(10);
  counters.updates = 7;
  counters.aggregate_nanoseconds = 8'000'000'000;
  counters.apply_nanoseconds = 9'000'000'000;
  counters.straggler_wait_nanoseconds = 10'000'000'000;
  ShardStats stats;
  counters.Fill(&stats);
  CHECK(stats.pushes() == 1);
  CHECK(stats.repeated_pushes() == 2);
  CHECK(stats.skipped_pushes() == 3);
  CHECK(stats.pulls() == 4);
  CHECK(stats.bytes_in() == 5);
  CHECK(stats.bytes_out() == 40);
  CHECK(stats.updates() == 7);
  CHECK(stats.aggregate_seconds() == Approx(8));
  CHECK(stats.apply_seconds() == Approx(9));
  CHECK(stats.straggler_wait_seconds() == Approx(10));
  CHECK(stats.staleness_size() == 0);
}

}  // namespace evenshard
