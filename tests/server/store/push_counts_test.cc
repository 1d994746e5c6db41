#include "server/store/push_counts.h"

#include <catch2/catch.hpp>

#include "proto/admin.pb.h"

namespace evenshard {

TEST_CASE("a push is counted by its outcome, and its bytes in any case") {
  PushCounts counts;
  counts.Add(PushOutcome::kCounted, 100);
  counts.Add(PushOutcome::kCounted, 10);
  counts.Add(PushOutcome::kSkipped, 0);
  counts.Add(PushOutcome::kRepeated, 5);
  CHECK(counts.bytes_in() == 115);

  const auto check = [&](auto stats) {
    counts.Fill(&stats);
    CHECK(stats.pushes() == 2);
    CHECK(stats.skipped_pushes() == 1);
    CHECK(stats.repeated_pushes() == 1);
    CHECK(stats.bytes_in() == 115);
  };
  check(ShardStats());
  check(WorkerStats());
}

}  // namespace evenshard
