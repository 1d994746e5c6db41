#ifndef EVENSHARD_TESTS_COMMON_PLACEMENT_SIMULATOR_CLUSTER_FIXTURE_H_
#define EVENSHARD_TESTS_COMMON_PLACEMENT_SIMULATOR_CLUSTER_FIXTURE_H_

#include <catch2/catch.hpp>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/planned_config.h"
#include "common/placement/simulator/cluster_rates.h"

namespace evenshard {

inline constexpr char kMemoryBased[] = "scheme: MEMORY_BASED";
inline constexpr char kGreedy[] = "scheme: LAYER_BASED placement: GREEDY";

// Three layers of 20,000, 400,000 and 10,000 parameters, 1.72 MB in chunks of 4,096 bytes, with
// `machines`, the part of a config about shards or a ring.
inline PlannedConfig ThreeLayers(const std::string& machines, const std::string& schedule,
                                 const std::vector<std::string>& overrides) {
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Parse(
      absl::StrCat("model {"
                   "  input { channels: 50 height: 1 width: 1 }"
                   "  layer { name: 'front' linear { out_features: 400 bias: false } }"
                   "  layer { name: 'large' linear { out_features: 1000 bias: false } }"
                   "  layer { name: 'back' linear { out_features: 10 bias: false } }"
                   "}"
                   "update { policy: SYNC } training { iterations: 1 }"
                   "compute { backend: EMULATED } limits { chunk_bytes: 4096 }"
                   "exchange { schedule: ",
                   schedule, "} ", machines),
      "f", overrides);
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *std::move(config);
}

inline PlannedConfig ClusterConfigOf(int workers, int shards, const std::string& partition,
                                     const std::string& schedule,
                                     const std::vector<std::string>& overrides = {}) {
  std::string machines = absl::StrCat("partition {", partition, "} workers: ", workers);
  for (int i = 0; i < shards; ++i) absl::StrAppend(&machines, " shard { address: 'ps:0' }");
  return ThreeLayers(machines, schedule, overrides);
}

inline PlannedConfig RingConfigOf(int workers, const std::string& schedule,
                                  const std::vector<std::string>& overrides = {}) {
  std::string machines = absl::StrCat("topology: RING workers: ", workers, " ring {");
  for (int i = 0; i < workers; ++i) absl::StrAppend(&machines, " address: 'worker:0'");
  return ThreeLayers(machines + " }", schedule, overrides);
}

// Every link passes `rate` bytes per second; nothing else takes time.
inline ClusterRates EqualRates(const PlannedConfig& config, double rate) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  return {.worker_link = std::vector<double>(config.workers(), rate),
          .shard_link = std::vector<double>(config.shards(), rate),
          .shard_processing = std::vector<double>(config.shards(), kNoLimit),
          .worker_slowdown = std::vector<double>(config.workers(), 1)};
}

// Every layer takes as long.
inline std::vector<LayerTime> EqualTimes(const PlannedConfig& config, double forward_seconds,
                                         double backward_seconds) {
  return std::vector<LayerTime>(config.model().layers().size(),
                                {forward_seconds, backward_seconds});
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_PLACEMENT_SIMULATOR_CLUSTER_FIXTURE_H_
