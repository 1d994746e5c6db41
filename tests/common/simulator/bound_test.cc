#include "common/simulator/bound.h"

#include <catch2/catch.hpp>

#include "tests/common/simulator/cluster_fixture.h"

namespace ps {
namespace {

constexpr double kModelBytes = 430000 * 4;
constexpr double kLargeBytes = 400000 * 4;
constexpr double kRate = 1e6;
constexpr double kCuts = 1e-4;  // cuts at multiples of 16 elements are not quite equal

TEST_CASE(
    "with equal links the bound is the time of the model or of the fullest shard, whichever is "
    "longer") {
  const auto bound = [](int workers, int shards, const char* partition) {
    const Config config = ClusterConfigOf(workers, shards, partition, "FULL");
    return BoundOf(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0))
        .iteration_seconds;
  };
  CHECK(bound(1, 1, kMemoryBased) == Approx(kModelBytes / kRate).epsilon(kCuts));
  CHECK(bound(8, 4, kMemoryBased) == Approx(2 * kModelBytes / kRate).epsilon(kCuts));
  CHECK(bound(2, 4, kMemoryBased) == Approx(kModelBytes / kRate).epsilon(kCuts));
  CHECK(bound(8, 2, kGreedy) == Approx(8 * kLargeBytes / kRate).epsilon(kCuts));
  CHECK(bound(1, 3, kGreedy) == Approx(kModelBytes / kRate).epsilon(kCuts));
}

TEST_CASE("SEQUENTIAL adds up compute, push and pull, and the other schedules overlap them") {
  for (const std::string schedule : {"SEQUENTIAL", "BACKWARD", "FULL"}) {
    CAPTURE(schedule);
    const Config config = ClusterConfigOf(4, 2, kMemoryBased, schedule);
    ClusterRates rates = EqualRates(config, kRate);
    rates.worker_slowdown[2] = 3;
    const Bound bound = BoundOf(config.planned_run(), rates, EqualTimes(config, 0.5, 1));
    const double exchange = 2 * kModelBytes / kRate;
    CHECK(bound.compute_seconds == Approx(3 * 3 * 1.5).epsilon(kCuts));
    CHECK(bound.push_seconds == Approx(exchange).epsilon(kCuts));
    CHECK(bound.pull_seconds == Approx(exchange).epsilon(kCuts));
    CHECK(bound.iteration_seconds ==
          Approx(schedule == "SEQUENTIAL" ? 13.5 + 2 * exchange : 13.5).epsilon(kCuts));
  }
}

TEST_CASE("a slow link, a slow shard and a shorter encoding count in their direction") {
  const Config config =
      ClusterConfigOf(2, 2, kMemoryBased, "FULL", {"exchange.gradient_encoding=FLOAT16"});
  ClusterRates rates = EqualRates(config, kRate);
  const auto bound = [&] { return BoundOf(config.planned_run(), rates, EqualTimes(config, 0, 0)); };
  CHECK(bound().push_seconds == Approx(kModelBytes / 2 / kRate).epsilon(kCuts));
  CHECK(bound().pull_seconds == Approx(kModelBytes / kRate).epsilon(kCuts));
  rates.shard_processing[1] = kRate / 10;
  CHECK(bound().push_seconds == Approx(10 * kModelBytes / 2 / kRate).epsilon(kCuts));
  CHECK(bound().pull_seconds == Approx(kModelBytes / kRate).epsilon(kCuts));
  rates.shard_link[0] = kRate / 20;
  CHECK(bound().push_seconds == Approx(20 * kModelBytes / 2 / kRate).epsilon(kCuts));
  CHECK(bound().pull_seconds == Approx(20 * kModelBytes / kRate).epsilon(kCuts));
  rates.worker_link[0] = kRate / 100;
  CHECK(bound().pull_seconds == Approx(100 * kModelBytes / kRate).epsilon(kCuts));
}

TEST_CASE("AUTO has a smaller bound than MEMORY_BASED if one shard's link is slow") {
  const std::vector<std::string> gbps = {"shard[0].link_gbps=2.5", "shard[1].link_gbps=10"};
  const auto bound = [&](const char* partition) {
    const Config config = ClusterConfigOf(4, 2, partition, "FULL", gbps);
    ClusterRates rates = EqualRates(config, 4 * kRate);
    rates.shard_link[0] = kRate;
    return BoundOf(config.planned_run(), rates, EqualTimes(config, 0, 0)).iteration_seconds;
  };
  CHECK(bound(kMemoryBased) == Approx(4 * kModelBytes / 2 / kRate).epsilon(kCuts));
  CHECK(bound("scheme: AUTO") == Approx(4 * kModelBytes / (5 * kRate)).epsilon(kCuts));
}

}  // namespace
}  // namespace ps
