// Tests the simulation of shards on the workers' hosts (ClusterConfig.colocated).

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

PlannedConfig OnHosts(int workers, int shards, const std::string& schedule = "FULL",
                      std::vector<std::string> overrides = {}) {
  overrides.push_back("colocated=true");
  overrides.push_back("limits.chunk_bytes=512");
  return ClusterConfigOf(workers, shards, kMemoryBased, schedule, overrides);
}

Simulation Exchange(const PlannedConfig& config, const SimulationOptions& options = {}) {
  return Simulate(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0),
                  options);
}

double BoundSeconds(const PlannedConfig& config) {
  return BoundOf(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 0, 0))
      .iteration_seconds();
}

TEST_CASE("with a shard on every worker's host a link passes what a ring's does") {
  for (const int hosts : {2, 4, 8}) {
    CAPTURE(hosts);
    const PlannedConfig config = OnHosts(hosts, hosts);
    const double ring_seconds = 2.0 * (hosts - 1) / hosts * kModelBytes / kRate;
    CHECK(BoundSeconds(config) == Approx(ring_seconds).epsilon(1e-3));
    const Simulation simulation = Exchange(config);
    CHECK(simulation.steady_seconds() >= ring_seconds * (1 - 1e-3));
    CHECK(simulation.steady_seconds() <= ring_seconds * 1.1);
    for (int host = 0; host < hosts; ++host) {
      const LinkUse& link = simulation.worker_links[host];
      CHECK(link.bytes_in == Approx(4 * ring_seconds * kRate).epsilon(1e-3));
      CHECK(link.bytes_out == Approx(4 * ring_seconds * kRate).epsilon(1e-3));
      CHECK(simulation.shard_links[host].bytes_in == link.bytes_in);
      CHECK(simulation.shard_links[host].bytes_out == link.bytes_out);
      // The shard itself also exchanges with the worker on its host.
      CHECK(simulation.shard_payload[host].bytes_in ==
            4.0 * hosts * 4 * config.plan().shard_parameters(host));
    }
  }
}

TEST_CASE("one master's link passes the whole model for every other worker") {
  const PlannedConfig config = OnHosts(4, 1);
  const double seconds = 3 * kModelBytes / kRate;
  CHECK(BoundSeconds(config) == Approx(seconds));
  const Simulation simulation = Exchange(config);
  CHECK(simulation.steady_seconds() == Approx(seconds).epsilon(0.02));
  CHECK(simulation.worker_links[0].bytes_in == Approx(4 * 3 * kModelBytes));
  CHECK(simulation.worker_links[3].bytes_in == Approx(4 * kModelBytes));
}

TEST_CASE("a worker with its shard on one host exchanges nothing through its link") {
  for (const std::string schedule : {"SEQUENTIAL", "BACKWARD", "FULL"}) {
    const PlannedConfig config = OnHosts(1, 1, schedule);
    const Simulation simulation =
        Simulate(config.planned_run(), EqualRates(config, kRate), EqualTimes(config, 1, 2));
    CHECK(simulation.steady_seconds() == Approx(9));
    CHECK(simulation.worker_links[0].bytes_out == 0);
    CHECK(simulation.shard_payload[0].bytes_in == Approx(4 * kModelBytes));
  }
}

TEST_CASE("a worker that needs no time at all does not go on for ever") {
  const PlannedConfig config = OnHosts(3, 1, "FULL", {"update.policy=ASYNC"});
  CHECK(Exchange(config).worker_links[1].bytes_in == Approx(4 * kModelBytes));
}

TEST_CASE("workers without a shard may stand for others, and those with one for themselves") {
  const PlannedConfig config = OnHosts(24, 2);
  const Simulation few = Exchange(config, {.representatives = 3});
  const Simulation all = Exchange(config, {.representatives = 24});
  CHECK(few.steady_seconds() == Approx(all.steady_seconds()).epsilon(0.03));
  REQUIRE(few.worker_links.size() == 24);
  for (const int rank : {0, 1, 23}) {
    CHECK(few.worker_links[rank].bytes_in == Approx(all.worker_links[rank].bytes_in).epsilon(1e-6));
  }
}

TEST_CASE("no shared link passes more than its rate allows, under any policy") {
  for (const std::string policy : {"{policy: SYNC}", "{policy: ASYNC}",
                                   "{policy: SSP staleness: 2}", "{policy: QUORUM quorum: 3}"}) {
    CAPTURE(policy);
    const PlannedConfig config = OnHosts(5, 3, "FULL", {"update=" + policy});
    ClusterRates rates = EqualRates(config, kRate);
    rates.worker_link[1] = rates.shard_link[1] = kRate / 3;
    rates.worker_slowdown[4] = 3;
    const Simulation simulation =
        Simulate(config.planned_run(), rates, EqualTimes(config, 0.1, 0.2), {.iterations = 3});
    for (int rank = 0; rank < 5; ++rank) {
      const LinkUse& link = simulation.worker_links[rank];
      const double most = rates.worker_link[rank] * simulation.seconds() * (1 + 1e-9) + 4096;
      CHECK(link.bytes_in <= most);
      CHECK(link.bytes_out <= most);
    }
  }
}

TEST_CASE("a message arrives after its latency, and after none on one host") {
  const PlannedConfig config = ClusterConfigOf(
      2, 1, kMemoryBased, "FULL",
      {"colocated=true", "limits.chunk_bytes=2097152", "limits.held_bytes=2097152"});
  ClusterRates rates = EqualRates(config, 1e6 * kRate);
  rates.latency_seconds = 1;
  // Worker 1's push, and the answer to it.
  CHECK(Simulate(config.planned_run(), rates, EqualTimes(config, 0, 0)).steady_seconds() ==
        Approx(2).epsilon(0.01));
  const PlannedConfig alone = OnHosts(1, 1);
  ClusterRates near = EqualRates(alone, kRate);
  near.latency_seconds = 1;
  CHECK(Simulate(alone.planned_run(), near, EqualTimes(alone, 1, 2)).steady_seconds() == Approx(9));
}

}  // namespace
}  // namespace evenshard
