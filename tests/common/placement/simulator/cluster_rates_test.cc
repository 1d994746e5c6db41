#include "common/placement/simulator/cluster_rates.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/common/placement/simulator/cluster_fixture.h"

namespace evenshard {
namespace {

using Rates = std::vector<double>;

ClusterRates RatesWith(const std::vector<std::string>& overrides,
                       std::optional<double> link_gbps = std::nullopt) {
  return ConfiguredRates(ClusterConfigOf(3, 2, kMemoryBased, "FULL", overrides).proto(), link_gbps);
}

TEST_CASE("without rates every link has 10 Gb/s, and shards take in any number of bytes") {
  const ClusterRates rates = RatesWith({});
  CHECK(rates.worker_link == Rates{10, 10, 10});
  CHECK(rates.shard_link == Rates{10, 10});
  CHECK(rates.worker_slowdown == Rates{1, 1, 1});
  REQUIRE(rates.shard_processing.size() == 2);
  CHECK(std::isinf(rates.shard_processing[0]));
}

TEST_CASE("a link without a rate is as fast as the fastest shard's") {
  CHECK(RatesWith({"shard[0].link_gbps=2.5", "shard[1].link_gbps=5"}).worker_link ==
        Rates{5, 5, 5});
  // A host's rate is not a link's.
  const ClusterRates rates = RatesWith({"shard[0].link_gbps=40", "shard[1].server_gbps=80"});
  CHECK(rates.worker_link == Rates{40, 40, 40});
  CHECK(rates.shard_link == Rates{40, 40});
  CHECK(std::isinf(rates.shard_processing[0]));
  CHECK(rates.shard_processing[1] == 10e9);
}

TEST_CASE("workers have the link that the config states, and are as slow") {
  const ClusterRates rates =
      RatesWith({"shard[0].link_gbps=2.5", "shard[1].link_gbps=5", "worker_link_gbps=1",
                 "compute.emulated={device: 'rtx_2080_ti' worker_slowdown: [1.5, 2]}"});
  CHECK(rates.worker_link == Rates{1, 1, 1});
  CHECK(rates.shard_link == Rates{2.5, 5});
  CHECK(rates.worker_slowdown == Rates{1.5, 2, 1});
}

TEST_CASE("a rate for all links replaces those of the config, and not what hosts take in") {
  const ClusterRates rates = RatesWith({"shard[0].link_gbps=2.5", "shard[0].server_gbps=8",
                                        "shard[1].link_gbps=5", "worker_link_gbps=1"},
                                       100);
  CHECK(rates.worker_link == Rates{100, 100, 100});
  CHECK(rates.shard_link == Rates{100, 100});
  CHECK(rates.shard_processing[0] == 1e9);
}

TEST_CASE("a shard on a worker's host has the same link") {
  const ClusterRates given = RatesWith(
      {"colocated=true", "shard[0].link_gbps=2.5", "shard[1].link_gbps=5", "worker_link_gbps=1"});
  CHECK(given.shard_link == Rates{2.5, 5});
  CHECK(given.worker_link == Rates{2.5, 5, 1});
  const ClusterRates of_workers = RatesWith({"colocated=true", "worker_link_gbps=1"});
  CHECK(of_workers.shard_link == Rates{1, 1});
  CHECK(of_workers.worker_link == Rates{1, 1, 1});
  const ClusterRates replaced = RatesWith({"colocated=true", "worker_link_gbps=1"}, 100);
  CHECK(replaced.shard_link == Rates{100, 100});
  CHECK(replaced.worker_link == Rates{100, 100, 100});
}

TEST_CASE("links are converted to payload in bytes per second") {
  ClusterRates rates = RatesWith({"shard[0].link_gbps=1", "shard[1].link_gbps=8"});
  ConvertLinks(Framing(), &rates);
  CHECK(rates.worker_link[2] == PayloadBytesPerSecond(8, Framing()));
  CHECK(rates.shard_link[0] == PayloadBytesPerSecond(1, Framing()));
  CHECK(rates.shard_link[1] == Approx(1e9 * 1448 / 1514));
}

}  // namespace
}  // namespace evenshard
