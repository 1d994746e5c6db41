// Tests the simulation of rings, through Simulate.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/simulator.h"
#include "tests/common/placement/simulator/cluster_fixture.h"

namespace evenshard {
namespace {

constexpr double kRate = 1e6;
constexpr double kModelBytes = 430000 * 4;

Simulation RunRing(const PlannedConfig& config, const ClusterRates& rates, double forward_seconds,
                   double backward_seconds, int iterations = 4) {
  return Simulate(config.planned_run(), rates,
                  EqualTimes(config, forward_seconds, backward_seconds),
                  {.iterations = iterations});
}

double SecondsOf(const PlannedConfig& config, double forward_seconds, double backward_seconds) {
  return RunRing(config, EqualRates(config, kRate), forward_seconds, backward_seconds)
      .steady_seconds();
}

TEST_CASE("each worker's link passes 2 (n - 1) / n times the model each way, and is never idle") {
  for (const int workers : {2, 3, 8, 64}) {
    CAPTURE(workers);
    const PlannedConfig config = RingConfigOf(workers, "FULL", {"limits.chunk_bytes=512"});
    const ClusterRates rates = EqualRates(config, kRate);
    const Simulation simulation = RunRing(config, rates, 0, 0);
    const double bytes = 2.0 * (workers - 1) / workers * kModelBytes;
    CHECK(BoundOf(config.planned_run(), rates, EqualTimes(config, 0, 0)).iteration_seconds() ==
          Approx(bytes / kRate).epsilon(1e-4));
    CHECK(simulation.seconds() >= 4 * bytes / kRate * (1 - 1e-6));
    CHECK(simulation.seconds() <= 4 * bytes / kRate * 1.1);
    REQUIRE(simulation.worker_links.size() == static_cast<size_t>(workers));
    for (const LinkUse& link : simulation.worker_links) {
      CHECK(link.bytes_in == Approx(4 * bytes).epsilon(1e-4));
      CHECK(link.bytes_out == Approx(4 * bytes).epsilon(1e-4));
    }
    CHECK(simulation.batches ==
          std::vector<double>{1.0 * workers, 2.0 * workers, 3.0 * workers, 4.0 * workers});
  }
}

TEST_CASE("two workers in place of equal ones take as long as all of them") {
  for (const char* schedule : {"SEQUENTIAL", "BACKWARD", "FULL"}) {
    for (const int workers : {3, 8}) {
      for (const double compute_seconds : {0.0, 0.3}) {
        CAPTURE(schedule, workers, compute_seconds);
        const PlannedConfig config = RingConfigOf(
            workers, schedule, {"ring.bucket_bytes=400000", "ring.first_bucket_bytes=20000"});
        ClusterRates rates = EqualRates(config, kRate);
        rates.latency_seconds = 1e-3;
        const double few = RunRing(config, rates, compute_seconds, 2 * compute_seconds).seconds();
        rates.worker_link[0] *= 1 + 1e-9;  // not quite equal, so that all are simulated
        const double all = RunRing(config, rates, compute_seconds, 2 * compute_seconds).seconds();
        CHECK(few == Approx(all).epsilon(0.01));
      }
    }
  }
}

TEST_CASE("buckets leave during the backward pass, and layers wait for theirs, by the schedule") {
  // An exchange takes 3.01 s with 8 workers, and computing 9 s.
  const auto seconds = [](const char* schedule) {
    return SecondsOf(
        RingConfigOf(8, schedule, {"ring.bucket_bytes=409600", "ring.first_bucket_bytes=40960"}), 1,
        2);
  };
  const double exchange = 2.0 * 7 / 8 * kModelBytes / kRate;
  CHECK(seconds("SEQUENTIAL") == Approx(9 + exchange).epsilon(0.03));
  // The buckets of the large layer leave when two of three layers' gradients exist, and the front
  // layer's, which the next forward pass needs first, after them.
  CHECK(seconds("BACKWARD") < 9 + 0.5 * exchange);
  CHECK(seconds("BACKWARD") > 9);
  CHECK(seconds("FULL") <= seconds("BACKWARD"));
  CHECK(seconds("FULL") >= 9);
}

TEST_CASE("what of a bucket is there leaves before the rest") {
  const PlannedConfig config = RingConfigOf(
      2, "BACKWARD",
      {"ring.bucket_bytes=4000000", "ring.first_bucket_bytes=4000000", "limits.chunk_bytes=65536"});
  REQUIRE(config.ring_plan().buckets().size() == 1);
  const double exchange = kModelBytes / kRate;
  CHECK(SecondsOf(config, 1, 2) >= 9);
  CHECK(SecondsOf(config, 1, 2) < 9 + 0.5 * exchange);
}

TEST_CASE("the slowest worker and the slowest link hold up the whole ring") {
  const PlannedConfig config = RingConfigOf(4, "FULL");
  ClusterRates rates = EqualRates(config, 1000 * kRate);
  rates.worker_slowdown[2] = 3;
  const Simulation slow = RunRing(config, rates, 1, 2);
  CHECK(slow.steady_seconds() == Approx(27).epsilon(0.01));
  CHECK(slow.batches_per_second(0) == Approx(4 / 27.0).epsilon(0.01));

  rates = EqualRates(config, 10 * kRate);
  rates.worker_link[1] = kRate;
  const double link = RunRing(config, rates, 0, 0).steady_seconds();
  CHECK(link == Approx(1.5 * kModelBytes / kRate).epsilon(0.03));
}

TEST_CASE("a small model takes the latency of 2 (n - 1) steps") {
  for (const int workers : {2, 3, 16}) {
    const PlannedConfig config = RingConfigOf(workers, "FULL");
    ClusterRates rates = EqualRates(config, 1e6 * kRate);
    rates.latency_seconds = 1;
    CHECK(RunRing(config, rates, 0, 0).steady_seconds() == Approx(2 * (workers - 1)).epsilon(0.01));
  }
}

TEST_CASE("sums and parameters take the bytes of their encodings") {
  const auto bytes = [](const std::vector<std::string>& overrides) {
    const PlannedConfig config = RingConfigOf(4, "FULL", overrides);
    return RunRing(config, EqualRates(config, kRate), 0, 0, 1).worker_links[3].bytes_out;
  };
  const double each = 0.75 * kModelBytes;
  CHECK(bytes({}) == Approx(2 * each));
  CHECK(bytes({"exchange.gradient_encoding=BFLOAT16"}) == Approx(1.5 * each));
  CHECK(bytes({"exchange.gradient_encoding=BFLOAT16", "exchange.parameter_encoding=FLOAT16"}) ==
        Approx(each));
}

TEST_CASE("with local steps a round has their computing, and one exchange") {
  const PlannedConfig config = RingConfigOf(4, "FULL", {"local={steps: 10 optimizer {kind: SGD}}"});
  const Simulation simulation = RunRing(config, EqualRates(config, kRate), 1, 2);
  CHECK(simulation.steady_seconds() >= 90);
  CHECK(simulation.steady_seconds() <= 90 + 2 * 0.75 * kModelBytes / kRate * 1.1);
  CHECK(simulation.batches[0] == 40);
}

TEST_CASE("with clipping by norm no parameter leaves before all sums are there") {
  // Buckets of which the first is there long before the others.
  const PlannedConfig config =
      RingConfigOf(2, "BACKWARD", {"ring.bucket_bytes=409600", "ring.first_bucket_bytes=40960"});
  const auto seconds = [&](float norm) {
    ClusterConfig clipped = config.proto();
    clipped.mutable_update()->set_clip_global_norm(norm);
    return Simulate({clipped, config.model(), config.plan(), &config.ring_plan()},
                    EqualRates(config, kRate), EqualTimes(config, 1, 2), {.iterations = 3})
        .steady_seconds();
  };
  // Then all parameters, half of them from each worker, follow the backward pass.
  CHECK(seconds(1) >= 9 + 0.5 * kModelBytes / kRate);
  CHECK(seconds(0) < 9 + 0.5 * kModelBytes / kRate);
}

TEST_CASE("equal arguments give equal simulations of rings") {
  const PlannedConfig config = RingConfigOf(5, "FULL");
  ClusterRates rates = EqualRates(config, kRate);
  rates.worker_link[3] = kRate / 3;
  CHECK(RunRing(config, rates, 0.01, 0.03).iteration_seconds ==
        RunRing(config, rates, 0.01, 0.03).iteration_seconds);
}

}  // namespace
}  // namespace evenshard
