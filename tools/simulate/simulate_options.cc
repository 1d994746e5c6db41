#include "tools/simulate/simulate_options.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/process/command_line.h"

namespace evenshard {
namespace {

// No config has more workers.
constexpr int kMaxWorkers = 1024;
// With more shards, the queues between workers and shards would not fit into memory.
constexpr int kMaxShards = 1024;
constexpr int kMaxTimelineBins = 100000;
// Each worker's log of more would not fit into memory.
constexpr int kMaxIterations = 100000;

// Returns the override of the field `shard` that gives the config `count` shards. Those that it
// does not have are as fast as the fastest that it has.
std::string ShardsOverride(const Config& config, int count) {
  ShardAddress added;
  for (const ShardAddress& shard : config.proto().shard()) {
    if (shard.link_gbps() > added.link_gbps()) added.set_link_gbps(shard.link_gbps());
    if (shard.server_gbps() > added.server_gbps()) added.set_server_gbps(shard.server_gbps());
  }
  std::vector<std::string> shards;
  for (int i = 0; i < count; ++i) {
    added.set_address(absl::StrCat("simulated-", i, ":1"));
    const ShardAddress& shard = i < config.shards() ? config.proto().shard(i) : added;
    shards.push_back(absl::StrCat("{", shard.ShortDebugString(), "}"));
  }
  return absl::StrCat("shard=[", absl::StrJoin(shards, ", "), "]");
}

// Returns the override of the field `ring` that gives it `count` workers.
std::string RingOverride(const Config& config, int count) {
  RingConfig ring = config.proto().ring();
  for (int i = ring.address_size(); i < count; ++i) {
    ring.add_address(absl::StrCat("simulated-", i, ":1"));
  }
  while (ring.address_size() > std::max(count, 0)) ring.mutable_address()->RemoveLast();
  return absl::StrCat("ring={", ring.ShortDebugString(), "}");
}

// Refuses flags for machines that do not exist.
absl::Status CheckMachines(const SimulateOptions& options, const PlannedConfig& config) {
  const auto refuse = [](const char* flag, const char* why, const char* allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": has no effect ", why, ", allowed: ", allowed));
  };
  constexpr char kInRing[] = "with topology RING, which has no shards";
  if (config.is_ring() && !options.shard_link_gbps.empty()) {
    return refuse("shard_link_gbps", kInRing, "--worker_link_gbps");
  }
  if (config.is_ring() && options.shard_gbytes_per_second) {
    return refuse("shard_gbytes_per_second", kInRing, "none");
  }
  if (config.proto().colocated() && !options.shard_link_gbps.empty()) {
    return refuse("shard_link_gbps", "with colocated, where shards have their workers' links",
                  "--worker_link_gbps");
  }
  return absl::OkStatus();
}

// Writes the number of each "INDEX:NUMBER" to values[INDEX].
absl::Status SetEach(const std::string& flag, const std::string& what,
                     const std::vector<std::string>& texts, std::vector<double>* values) {
  std::set<int> given;
  for (const std::string& text : texts) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
    int index;
    double value;
    if (!absl::SimpleAtoi(parts.first, &index) || index < 0 ||
        index >= static_cast<int>(values->size())) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": the ", what, " of \"", text,
                                                     "\" does not exist, allowed: 0 to ",
                                                     values->size() - 1));
    }
    if (!absl::SimpleAtod(parts.second, &value) || !std::isfinite(value) || value <= 0) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": is \"", text, "\", allowed: a ",
                                                     what, ", a colon and a number above 0"));
    }
    if (!given.insert(index).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag, ": ", what, " ", index, " is given twice"));
    }
    (*values)[index] = value;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlannedConfig> LoadConfig(const SimulateOptions& options) {
  RETURN_IF_ERROR(CheckReadableAgain(
      options.config, "what --workers and --shards change is looked up before it is loaded"));
  std::vector<std::string> overrides = options.overrides;
  std::vector<std::pair<std::string, std::string>> spellings;
  const auto load = [&] {
    absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(options.config, overrides);
    if (config.ok()) {
      const absl::Status usable = config->CheckOwnModel();
      if (!usable.ok()) config = usable;
    }
    if (config.ok()) return config;
    // An error names the flag that the user gave instead of the override made from it.
    return absl::StatusOr<PlannedConfig>(absl::Status(
        config.status().code(), absl::StrReplaceAll(config.status().message(), spellings)));
  };
  const auto override_by = [&](const std::string& flag, const std::string& override) {
    overrides.push_back(override);
    spellings.emplace_back(absl::StrCat("--set ", override, ": "), absl::StrCat(flag, ": "));
  };
  // What the flags change. If it is wrong, load() says why.
  const absl::StatusOr<Config> file = Config::Load(options.config, options.overrides);
  if (!options.workers.empty()) {
    override_by(absl::StrCat("--workers=", options.workers),
                absl::StrCat("workers=", options.workers));
    int workers;
    if (file.ok() && file->is_ring() && absl::SimpleAtoi(options.workers, &workers) &&
        workers <= kMaxWorkers) {
      overrides.push_back(RingOverride(*file, workers));
    }
  }
  if (options.shards.empty() || !file.ok()) return load();
  int shards;
  if (!absl::SimpleAtoi(options.shards, &shards) || shards < 1 || shards > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shards: is \"", options.shards, "\", allowed: 1 to ", kMaxShards));
  }
  if (file->is_ring()) {
    return absl::InvalidArgumentError(
        "--shards: has no effect with topology RING, which has no shards, allowed: none");
  }
  override_by(absl::StrCat("--shards=", options.shards), ShardsOverride(*file, shards));
  return load();
}

absl::StatusOr<ClusterRates> RatesOf(const SimulateOptions& options, const PlannedConfig& config) {
  if (options.framing.mtu < Framing::kMinMtu || options.framing.mtu > Framing::kMaxMtu) {
    return absl::InvalidArgumentError(absl::StrCat("--mtu: is ", options.framing.mtu, ", allowed: ",
                                                   Framing::kMinMtu, " to ", Framing::kMaxMtu));
  }
  RETURN_IF_ERROR(CheckMachines(options, config));
  ClusterRates rates = ConfiguredRates(config.proto(), options.link_gbps);
  rates.latency_seconds = options.latency_us.value_or(0) * 1e-6;
  if (options.shard_gbytes_per_second) {
    rates.shard_processing.assign(config.shards(), *options.shard_gbytes_per_second * 1e9);
  }
  RETURN_IF_ERROR(
      SetEach("worker_link_gbps", "rank", options.worker_link_gbps, &rates.worker_link));
  RETURN_IF_ERROR(SetEach("shard_link_gbps", "shard", options.shard_link_gbps, &rates.shard_link));
  RETURN_IF_ERROR(SetEach("slow_worker", "rank", options.slow_worker, &rates.worker_slowdown));
  if (config.proto().colocated()) {
    std::copy_n(rates.worker_link.begin(), config.shards(), rates.shard_link.begin());
  }
  ConvertLinks(options.framing, &rates);
  return rates;
}

absl::Status CheckSlowWorkers(const SimulateOptions& options, const PlannedConfig& config,
                              absl::Span<const LayerTime> layer_times) {
  const bool computes = std::any_of(
      layer_times.begin(), layer_times.end(),
      [](const LayerTime& time) { return time.forward_seconds + time.backward_seconds > 0; });
  if (options.slow_worker.empty() || computes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--slow_worker: has no effect, since workers compute nothing here: ",
                   NoComputeReason(config.proto()),
                   ", allowed: with --set=compute.backend=EMULATED "
                   "--set=compute.emulated.device=DEVICE"));
}

absl::Status CheckSimulation(const SimulationOptions& simulation, const PlannedConfig& config,
                             bool json) {
  if (simulation.iterations < 1 || simulation.iterations > kMaxIterations) {
    return absl::InvalidArgumentError(absl::StrCat("--iterations: is ", simulation.iterations,
                                                   ", allowed: 1 to ", kMaxIterations));
  }
  if (simulation.representatives < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--representatives: is ", simulation.representatives, ", allowed: at least 1"));
  }
  const int bins = simulation.timeline_bins;
  if (bins < 0 || bins > kMaxTimelineBins) {
    return absl::InvalidArgumentError(absl::StrCat("--timeline: is ", bins, ", allowed: 1 to ",
                                                   kMaxTimelineBins, ", or 0 for none"));
  }
  if (bins == 0) return absl::OkStatus();
  if (config.is_ring()) {
    return absl::InvalidArgumentError(
        "--timeline: has no effect with topology RING, which has no shards, allowed: none");
  }
  if (json) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--timeline: has no effect on the table, allowed: with --format=json");
}

}  // namespace evenshard
