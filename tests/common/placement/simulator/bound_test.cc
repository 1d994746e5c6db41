#include "common/placement/simulator/bound.h"

#include <catch2/catch.hpp>

#include "tests/common/placement/simulator/cluster_fixture.h"

namespace evenshard {
namespace {

constexpr double kModelBytes = 430000 * 4;
constexpr double kLargeBytes = 400000 * 4;
constexpr double kRate = 1e6;
constexpr double kCuts = 1e-4;  // cuts at multiples of 16 elements are not quite equal

TEST_CASE(
    "with equal links the bound is the time of the model or of the fullest shard, whichever is "
    "longer") {
  const auto bound = [](int workers, int shards, const char* partition) {
    const PlannedConfig config = ClusterConfigOf(workers, shards, partition, "FULL");
    return BoundOf(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0))
        .iteration_seconds();
  };
  CHECK(bound(1, 1, kMemoryBased) == Approx(kModelBytes / kRate).epsilon(kCuts));
  CHECK(bound(8, 4, kMemoryBased) == Approx(2 * kModelBytes / kRate).epsilon(kCuts));
  CHECK(bound(2, 4, kMemoryBased) == Approx(kModelBytes / kRate).epsilon(kCuts));
  CHECK(bound(8, 2, kGreedy) == Approx(8 * kLargeBytes / kRate).epsilon(kCuts));
  CHECK(bound(1, 3, kGreedy) == Approx(kModelBytes / kRate).epsilon(kCuts));
}

TEST_CASE("half the bytes of a model of 16 bits take half the time") {
  const auto bound = [](const std::string& type) {
    const absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
        absl::StrCat("model { from_workers { tensor { name: 'a' shape: [100000] type: ", type,
                     " } } } optimizer { kind: SGD learning_rate: 1 } update { policy: SYNC }"
                     "partition { scheme: MEMORY_BASED } shard { address: 'ps:0' } workers: 1"),
        "f");
    REQUIRE(config.ok());
    return BoundOf(config->planned_run(), EqualRates(*config, kRate), EqualTimes(*config, 0, 0));
  };
  CHECK(bound("FLOAT32").iteration_seconds() == Approx(0.4));
  CHECK(bound("BFLOAT16").iteration_seconds() == Approx(0.2));
  CHECK(bound("FLOAT16").push_seconds == Approx(0.4));
  CHECK(bound("FLOAT16").pull_seconds == Approx(0.2));
}

// Layers of 0.08, 1.6 and 0.04 s on a link of kRate, each 0.5 s forward and 1 s backward.
Bound ComputingBound(int workers, const std::string& schedule, const std::string& policy = "SYNC",
                     double slowdown_of_last = 1) {
  const PlannedConfig config =
      ClusterConfigOf(workers, 1, kMemoryBased, schedule, {"update.policy=" + policy});
  ClusterRates rates = EqualRates(config, kRate);
  rates.worker_slowdown.back() = slowdown_of_last;
  return BoundOf(config.planned_run(), rates, EqualTimes(config, 0.5, 1));
}

TEST_CASE("layers travel after the computing that their schedule puts before them") {
  const Bound full = ComputingBound(1, "FULL");
  CHECK(full.iteration_seconds() == Approx(3 + 1.68));
  CHECK(full.term.layer == 1);
  CHECK(full.term.compute_seconds == Approx(3));
  CHECK(full.term.transfer_seconds == Approx(1.68));
  const Bound backward = ComputingBound(1, "BACKWARD");
  CHECK(backward.iteration_seconds() == Approx(1.5 + 2 + 1.68));
  CHECK(backward.term.layer == 1);
  CHECK(ComputingBound(1, "SEQUENTIAL").iteration_seconds() == Approx(4.5 + 2 * 1.72));
}

TEST_CASE("under SYNC all workers' transfers follow the computing of the fastest") {
  const Bound full = ComputingBound(8, "FULL", "SYNC", 1.5);
  CHECK(full.iteration_seconds() == Approx(3 + 8 * 1.68));
  CHECK(full.term.kind == BoundTerm::kShardIn);
  const Bound sequential = ComputingBound(8, "SEQUENTIAL", "SYNC", 1.5);
  CHECK(sequential.iteration_seconds() == Approx(4.5 + 8 * 1.72));
  CHECK(sequential.in_step_seconds == Approx(1.5 * 4.5 + 2 * 8 * 1.72));
}

TEST_CASE("with clipping by norm all parameters follow all gradients") {
  // Layers of 0.08, 1.6 and 0.04 s, with 1 s backward each; forward passes of 0.5 s.
  const auto bound = [](int workers, const std::string& schedule) {
    const PlannedConfig config =
        ClusterConfigOf(workers, 1, kMemoryBased, schedule, {"update.clip_global_norm=1"});
    return BoundOf(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0.5, 1));
  };
  // The parameters, the backward pass to the second layer, and the gradients up to it. The forward
  // pass under FULL may overlap with the parameters.
  CHECK(bound(1, "FULL").iteration_seconds() == Approx(1.72 + 2 + 1.68));
  CHECK(bound(1, "BACKWARD").iteration_seconds() == Approx(1.72 + 1.5 + 2 + 1.68));
  CHECK(bound(1, "SEQUENTIAL").iteration_seconds() == Approx(1.72 + 4.5 + 1.72));
  // The last of eight workers to have its parameters pushes alone.
  CHECK(bound(8, "FULL").iteration_seconds() == Approx(8 * 1.72 + 2 + 1.68));
  CHECK(bound(8, "SEQUENTIAL").iteration_seconds() == Approx(8 * 1.72 + 4.5 + 1.72));
}

TEST_CASE("under ASYNC the shards' links wait for no computing") {
  CHECK(ComputingBound(8, "FULL", "ASYNC").iteration_seconds() == Approx(8 * 1.72));
  CHECK(ComputingBound(8, "SEQUENTIAL", "ASYNC").iteration_seconds() == Approx(8 * 1.72));
}

TEST_CASE("a slow worker alone can decide") {
  for (const std::string policy : {"SYNC", "ASYNC"}) {
    CAPTURE(policy);
    const Bound full = ComputingBound(8, "FULL", policy, 100);
    CHECK(full.iteration_seconds() == Approx(100 * 4.5 + 0.08));
    CHECK(full.compute_seconds == Approx(100 * 4.5));
    CHECK(full.term.kind == BoundTerm::kWorkerLink);
    CHECK(full.term.machine == 7);
    CHECK(full.term.layer == 0);
    CHECK(ComputingBound(8, "SEQUENTIAL", policy, 100).iteration_seconds() ==
          Approx(100 * 4.5 + 2 * 1.72));
  }
}

TEST_CASE("the link of a shard bounds what one worker exchanges under SEQUENTIAL") {
  const PlannedConfig config = ClusterConfigOf(1, 2, kMemoryBased, "SEQUENTIAL");
  ClusterRates rates = EqualRates(config, kRate);
  rates.shard_link[1] = kRate / 10;
  CHECK(BoundOf(config.planned_run(), rates, EqualTimes(config, 0, 0)).iteration_seconds() ==
        Approx(2 * 10 * kModelBytes / 2 / kRate).epsilon(kCuts));
}

TEST_CASE("a slow link, a slow shard and a shorter encoding count in their direction") {
  const PlannedConfig config =
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

TEST_CASE("pushes in 8 and 4 bits count with the scales of their blocks") {
  for (const auto& [encoding, part] : {std::pair("INT8", 258.0 / 256), {"INT4", 34.0 / 64}}) {
    CAPTURE(encoding);
    const PlannedConfig config = ClusterConfigOf(
        2, 2, kMemoryBased, "FULL", {std::string("exchange.gradient_encoding=") + encoding});
    const Bound bound =
        BoundOf(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0));
    CHECK(bound.push_seconds == Approx(part * kModelBytes / 4 / kRate).epsilon(kCuts));
    CHECK(bound.pull_seconds == Approx(kModelBytes / kRate).epsilon(kCuts));
  }
}

TEST_CASE("AUTO has a smaller bound than MEMORY_BASED if one shard's link is slow") {
  const std::vector<std::string> gbps = {"shard[0].link_gbps=2.5", "shard[1].link_gbps=10"};
  const auto bound = [&](const char* partition) {
    const PlannedConfig config = ClusterConfigOf(4, 2, partition, "FULL", gbps);
    ClusterRates rates = EqualRates(config, 4 * kRate);
    rates.shard_link[0] = kRate;
    return BoundOf(config.planned_run(), rates, EqualTimes(config, 0, 0)).iteration_seconds();
  };
  CHECK(bound(kMemoryBased) == Approx(4 * kModelBytes / 2 / kRate).epsilon(kCuts));
  CHECK(bound("scheme: AUTO") == Approx(4 * kModelBytes / (5 * kRate)).epsilon(kCuts));
}

}  // namespace
}  // namespace evenshard
