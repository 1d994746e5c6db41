#ifndef EVENSHARD_TOOLS_SIMULATE_SIMULATE_OPTIONS_H_
#define EVENSHARD_TOOLS_SIMULATE_SIMULATE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/placement/plan/device_profile.h"
#include "common/placement/planned_config.h"
#include "common/placement/simulator/cluster_rates.h"
#include "common/placement/simulator/network/framing.h"
#include "common/placement/simulator/simulator.h"

namespace evenshard {

// The flags of //tools/simulate that describe the simulated cluster.
struct SimulateOptions {
  std::string config;
  std::vector<std::string> overrides;  // "FIELD=VALUE"
  std::string workers;                 // replaces the config's number of workers, unless empty
  std::string shards;                  // replaces the config's number of shards, unless empty
  // The rate of every link in Gb/s, above 0. If it is absent, links have the rates of
  // ConfiguredRates.
  std::optional<double> link_gbps;
  std::vector<std::string> worker_link_gbps;  // "RANK:RATE"
  std::vector<std::string> shard_link_gbps;   // "SHARD:RATE"
  std::vector<std::string> slow_worker;       // "RANK:FACTOR"
  // The speed of every shard, above 0. It replaces the config's server_gbps.
  std::optional<double> shard_gbytes_per_second;
  std::optional<double> latency_us;  // of a message, in microseconds, at least 0; default: 0
  Framing framing;
};

// Loads the config with the numbers of workers and shards of the flags. Shards, and workers of a
// ring, that the file does not have get addresses that nobody can reach. Errors: INVALID_ARGUMENT,
// which names the flag or the field.
absl::StatusOr<PlannedConfig> LoadConfig(const SimulateOptions& options);

// Returns the rates of the config's machines as the flags say. A shard on a worker's host has the
// worker's link. Errors: INVALID_ARGUMENT, which names the flag, if the rate or factor of one
// machine is not a number above 0, or a rank or shard does not exist, has no link of its own, or is
// given twice.
absl::StatusOr<ClusterRates> RatesOf(const SimulateOptions& options, const PlannedConfig& config);

// Refuses slow workers if they would have no effect.
// Errors: INVALID_ARGUMENT if there is a slow worker and no layer of the config takes any time.
absl::Status CheckSlowWorkers(const SimulateOptions& options, const PlannedConfig& config,
                              absl::Span<const LayerTime> layer_times);

// Errors: INVALID_ARGUMENT, which names the flag, if an option is out of range, or if there is a
// timeline in a ring, which has no shards, or without `json`, which alone has it.
absl::Status CheckSimulation(const SimulationOptions& simulation, const PlannedConfig& config,
                             bool json);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_SIMULATE_SIMULATE_OPTIONS_H_
