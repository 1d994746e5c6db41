#ifndef PS_EXPERIMENTS_SIMULATE_OPTIONS_H_
#define PS_EXPERIMENTS_SIMULATE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/config/config.h"
#include "common/model/device_profile.h"
#include "experiments/cluster_rates.h"
#include "experiments/framing.h"

namespace ps {

// The flags of //experiments:simulate that say which cluster is simulated.
struct SimulateOptions {
  std::string config;
  std::vector<std::string> overrides;  // of the config's fields
  std::string workers;                 // in place of the config's number, where given
  std::string shards;
  // Of every link, in Gb/s. Without it, a shard's link has the config's link_gbps where it
  // gives one, and every other link kDefaultGbps.
  std::optional<double> link_gbps;
  std::vector<std::string> worker_link_gbps;  // "RANK:RATE"
  std::vector<std::string> shard_link_gbps;   // "SHARD:RATE"
  std::vector<std::string> slow_worker;       // "RANK:FACTOR"
  // Of every shard, in place of the config's server_gbps.
  std::optional<double> shard_gbytes_per_second;
  Framing framing;

  static constexpr double kDefaultGbps = 10;
};

// Loads the config with as many workers and shards as asked for. More shards than the file
// has get addresses that nobody can reach. Errors: INVALID_ARGUMENT naming flag or field.
absl::StatusOr<Config> LoadConfig(const SimulateOptions& options);

// Errors: INVALID_ARGUMENT naming the flag: a rate or factor that is no number above 0, a rank
// or shard that is not there or given twice.
absl::StatusOr<ClusterRates> RatesOf(const SimulateOptions& options, const Config& config);

// Errors: INVALID_ARGUMENT for a slow worker where no layer of the config takes any time.
absl::Status CheckSlowWorkers(const SimulateOptions& options, const Config& config,
                              absl::Span<const LayerTime> layer_times);

// Why the workers of a config compute nothing in a simulation: "compute.emulated.device is ...".
// For configs whose layers take no time.
std::string NoComputeReason(const Config& config);

}  // namespace ps

#endif  // PS_EXPERIMENTS_SIMULATE_OPTIONS_H_
