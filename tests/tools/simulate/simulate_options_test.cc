#include "tools/simulate/simulate_options.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "absl/strings/match.h"
#include "tests/common/placement/simulator/cluster_fixture.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

const double kPayloadShare = 1448.0 / 1514;

ClusterRates MustGetRates(const SimulateOptions& options, const PlannedConfig& config) {
  absl::StatusOr<ClusterRates> rates = RatesOf(options, config);
  INFO(rates.status().message());
  REQUIRE(rates.ok());
  return *std::move(rates);
}

std::string ErrorOf(const SimulateOptions& options) {
  const absl::Status status =
      RatesOf(options, ClusterConfigOf(2, 2, kMemoryBased, "FULL")).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST_CASE("every link has 10 Gb/s unless a flag or the config says otherwise") {
  const PlannedConfig config = ClusterConfigOf(2, 2, kMemoryBased, "FULL");
  ClusterRates rates = MustGetRates({}, config);
  CHECK(rates.worker_link[1] == Approx(1.25e9 * kPayloadShare));
  CHECK(rates.shard_link[1] == Approx(1.25e9 * kPayloadShare));
  CHECK(std::isinf(rates.shard_processing[0]));
  CHECK(rates.worker_slowdown == std::vector<double>{1, 1});

  SimulateOptions options;
  options.link_gbps = 400;
  options.worker_link_gbps = {"1:1"};
  options.shard_link_gbps = {"0:2.5", "1:5"};
  options.slow_worker = {"0:1.5"};
  options.shard_gbytes_per_second = 3;
  rates = MustGetRates(options, config);
  CHECK(rates.worker_link[0] == Approx(50e9 * kPayloadShare));
  CHECK(rates.worker_link[1] == Approx(0.125e9 * kPayloadShare));
  CHECK(rates.shard_link[0] == Approx(2.5e9 / 8 * kPayloadShare));
  CHECK(rates.shard_link[1] == Approx(5e9 / 8 * kPayloadShare));
  CHECK(rates.worker_slowdown == std::vector<double>{1.5, 1});
  CHECK(rates.shard_processing == std::vector<double>{3e9, 3e9});
}

TEST_CASE("workers are as slow as in the config, unless a flag says otherwise") {
  const PlannedConfig config = ClusterConfigOf(
      3, 1, kMemoryBased, "FULL",
      {"compute={backend: EMULATED emulated {device: 'rtx_2080_ti' worker_slowdown: [1.5, 2]}}"});
  CHECK(MustGetRates({}, config).worker_slowdown == std::vector<double>{1.5, 2, 1});
  SimulateOptions options;
  options.slow_worker = {"1:3"};
  CHECK(MustGetRates(options, config).worker_slowdown == std::vector<double>{1.5, 3, 1});
}

TEST_CASE("the config's rates are its shards', and flags for all shards replace them") {
  const PlannedConfig config =
      ClusterConfigOf(1, 2, "scheme: AUTO", "FULL",
                      {"shard[0].link_gbps=2", "shard[0].server_gbps=8", "shard[1].link_gbps=4"});
  const ClusterRates rates = MustGetRates({}, config);
  CHECK(rates.shard_link[0] == Approx(0.25e9 * kPayloadShare));
  CHECK(rates.shard_link[1] == Approx(0.5e9 * kPayloadShare));
  CHECK(rates.shard_processing[0] == Approx(1e9));
  CHECK(std::isinf(rates.shard_processing[1]));
  // Workers' links are as fast as the fastest shard's.
  CHECK(rates.worker_link[0] == Approx(0.5e9 * kPayloadShare));
  SimulateOptions options;
  options.link_gbps = 1;
  CHECK(MustGetRates(options, config).shard_link[1] == Approx(0.125e9 * kPayloadShare));
  CHECK(MustGetRates(options, config).worker_link[0] == Approx(0.125e9 * kPayloadShare));
}

TEST_CASE("a shard on a worker's host has the link of the worker, also from flags") {
  const PlannedConfig config = ClusterConfigOf(3, 2, kMemoryBased, "FULL", {"colocated=true"});
  SimulateOptions options;
  options.worker_link_gbps = {"1:1", "2:2.5"};
  const ClusterRates rates = MustGetRates(options, config);
  CHECK(rates.worker_link[0] == Approx(1.25e9 * kPayloadShare));
  CHECK(rates.worker_link[1] == Approx(0.125e9 * kPayloadShare));
  CHECK(rates.shard_link == std::vector<double>{rates.worker_link[0], rates.worker_link[1]});
  options.shard_link_gbps = {"0:1"};
  CHECK(RatesOf(options, config).status().message() ==
        "--shard_link_gbps: has no effect with colocated, where shards have their workers' links, "
        "allowed: --worker_link_gbps");
}

TEST_CASE("flags for shards are refused for a ring, and messages have a latency if one is given") {
  const PlannedConfig config = RingConfigOf(3, "FULL");
  SimulateOptions options;
  CHECK(MustGetRates(options, config).latency_seconds == 0);
  options.latency_us = 250;
  CHECK(MustGetRates(options, config).latency_seconds == Approx(250e-6));
  options.shard_link_gbps = {"0:1"};
  CHECK(RatesOf(options, config).status().message() ==
        "--shard_link_gbps: has no effect with topology RING, which has no shards, allowed: "
        "--worker_link_gbps");
  options.shard_link_gbps.clear();
  options.shard_gbytes_per_second = 1;
  CHECK(RatesOf(options, config).status().message() ==
        "--shard_gbytes_per_second: has no effect with topology RING, which has no shards, "
        "allowed: none");
  CHECK(CheckSimulation({.timeline_bins = 5}, config, true).message() ==
        "--timeline: has no effect with topology RING, which has no shards, allowed: none");
}

TEST_CASE("a ring gets as many workers as asked for, and no shards") {
  const ScratchFolder folder;
  SimulateOptions options;
  options.config = folder.Write("run.textproto", RingConfigOf(3, "FULL").proto().DebugString());
  options.workers = "70";
  const absl::StatusOr<PlannedConfig> config = LoadConfig(options);
  INFO(config.status().message());
  REQUIRE(config.ok());
  CHECK(config->workers() == 70);
  CHECK(config->proto().ring().address(0) == "worker:0");
  options.workers = "2";
  CHECK(LoadConfig(options)->workers() == 2);
  options.workers = "0";
  CHECK(absl::StrContains(LoadConfig(options).status().message(), "workers: is 0"));
  options.workers = "2000000000";
  CHECK(absl::StrContains(LoadConfig(options).status().message(), "workers: is 2000000000"));
  options.workers = "";
  options.shards = "2";
  CHECK(LoadConfig(options).status().message() ==
        "--shards: has no effect with topology RING, which has no shards, allowed: none");
}

TEST_CASE("impossible rates, factors and ranks are refused, and the error names the flag") {
  SimulateOptions options;
  options.framing.mtu = 52;
  CHECK(ErrorOf(options) == "--mtu: is 52, allowed: 576 to 65535");
  for (const std::string rank : {"2:10", "-1:10", "x:10", "10", ""}) {
    CAPTURE(rank);
    options = {};
    options.worker_link_gbps = {rank};
    CHECK(ErrorOf(options) ==
          "--worker_link_gbps: the rank of \"" + rank + "\" does not exist, allowed: 0 to 1");
  }
  for (const std::string rate : {"1:0", "1:-2", "1:nan", "1:inf", "1:fast", "1:", "1"}) {
    CAPTURE(rate);
    options = {};
    options.shard_link_gbps = {rate};
    CHECK(ErrorOf(options) ==
          "--shard_link_gbps: is \"" + rate + "\", allowed: a shard, a colon and a number above 0");
  }
  options = {};
  options.slow_worker = {"1:2", "1:3"};
  CHECK(ErrorOf(options) == "--slow_worker: rank 1 is given twice");
}

TEST_CASE("a slow worker is refused with the reason if workers compute nothing") {
  const PlannedConfig config = ClusterConfigOf(2, 2, kMemoryBased, "FULL");
  SimulateOptions options;
  CHECK(CheckSlowWorkers(options, config, EqualTimes(config, 0, 0)).ok());
  options.slow_worker = {"1:2"};
  CHECK(CheckSlowWorkers(options, config, EqualTimes(config, 0.1, 0.2)).ok());
  CHECK(CheckSlowWorkers(options, config, EqualTimes(config, 0, 0)).message() ==
        "--slow_worker: has no effect, since workers compute nothing here: "
        "compute.emulated.device is \"none\", allowed: with --set=compute.backend=EMULATED "
        "--set=compute.emulated.device=DEVICE");
}

TEST_CASE("the config gets as many workers and shards as asked for") {
  const ScratchFolder folder;
  SimulateOptions options;
  options.config = folder.Write("run.textproto",
                                ClusterConfigOf(2, 2, kMemoryBased, "FULL").proto().DebugString());
  options.workers = "1024";
  options.shards = "100";
  absl::StatusOr<PlannedConfig> config = LoadConfig(options);
  INFO(config.status().message());
  REQUIRE(config.ok());
  CHECK(config->workers() == 1024);
  CHECK(config->shards() == 100);
  options.shards = "1";
  config = LoadConfig(options);
  REQUIRE(config.ok());
  CHECK(config->shards() == 1);
  CHECK(config->address(0) == "ps:0");

  const auto error = [&] { return std::string(LoadConfig(options).status().message()); };
  for (const std::string shards : {"0", "-1", "two", "4097"}) {
    options.shards = shards;
    CHECK(error() == "--shards: is \"" + shards + "\", allowed: 1 to 1024");
  }
  options.shards.clear();
  options.workers = "0";
  CHECK(error() == "--workers=0: workers: is 0, allowed: 1 to 1024");
  options.workers.clear();
  options.overrides = {"wrkers=3"};
  CHECK(absl::StrContains(error(), "wrkers: unknown field"));
}

TEST_CASE("a config that can be read only once is refused") {
  const ScratchFolder folder;
  SimulateOptions options;
  options.config = folder.Path("pipe");
  REQUIRE(mkfifo(options.config.c_str(), 0600) == 0);
  CHECK(absl::StrContains(LoadConfig(options).status().message(),
                          "is a pipe, which can be read once"));
}

TEST_CASE("added shards are as fast as the others, and both numbers may change at once") {
  const ScratchFolder folder;
  SimulateOptions options;
  options.config = folder.Write("run.textproto",
                                ClusterConfigOf(2, 2, kMemoryBased, "FULL").proto().DebugString());
  options.overrides = {"shard[0].link_gbps=5", "shard[1].link_gbps=25", "shard[0].server_gbps=3",
                       "shard[1].server_gbps=2"};
  options.shards = "3";
  absl::StatusOr<PlannedConfig> config = LoadConfig(options);
  INFO(config.status().message());
  REQUIRE(config.ok());
  CHECK(config->proto().shard(0).link_gbps() == 5);
  CHECK(config->proto().shard(2).link_gbps() == 25);
  CHECK(config->proto().shard(2).server_gbps() == 3);
  // Shards beside workers are not more than these.
  options.overrides = {"colocated=true"};
  for (const std::string count : {"1", "2", "3"}) {
    options.workers = options.shards = count;
    config = LoadConfig(options);
    INFO(config.status().message());
    REQUIRE(config.ok());
    CHECK(config->workers() == config->shards());
  }
}

}  // namespace
}  // namespace evenshard
