#include <iostream>
#include <string>
#include <utility>

#include "common/placement/plan/device_profile.h"
#include "common/placement/simulator/bound.h"
#include "common/placement/simulator/simulation.h"
#include "common/placement/simulator/simulator.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/process/standard_output.h"
#include "tools/simulate/simulate_options.h"
#include "tools/simulate/simulate_report.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "Evenshard's simulate --config=FILE [flags]\n\n"
    "Simulates the run of a config on links, shards and devices that need not exist, and prints\n"
    "the time of an iteration. Rates are in Gb/s in each direction, from which the overhead of\n"
    "Ethernet, IP and TCP is subtracted.";
constexpr int kFailure = 1;
constexpr int kUsageError = 2;

int Main(int argc, char** argv) {
  SimulateOptions options;
  std::string format = "table";
  SimulationOptions simulation;
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &options.config, true},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated",
       &options.overrides},
      {"workers", "N", "replaces the config's number of workers", &options.workers},
      {"shards", "N", "replaces the config's number of shards", &options.shards},
      {"link_gbps", "RATE",
       "rate of every link; default: 10, or a shard's link_gbps if the config has it",
       &options.link_gbps},
      {"worker_link_gbps", "RANK:RATE", "rate of one worker's link; may be repeated",
       &options.worker_link_gbps},
      {"shard_link_gbps", "SHARD:RATE", "rate of one shard's link; may be repeated",
       &options.shard_link_gbps},
      {"slow_worker", "RANK:FACTOR",
       "a worker that computes FACTOR times as long; may be repeated; needs an emulated device",
       &options.slow_worker},
      {"shard_gbytes_per_second", "RATE",
       "10^9 bytes of gradients per second that each shard adds up; default: the config's "
       "server_gbps, otherwise no limit",
       &options.shard_gbytes_per_second},
      {.name = "latency_us",
       .value = "TIME",
       .help = "how long a message takes to arrive after it has passed the links, and to be taken "
               "up, in microseconds; default: 0",
       .target = &options.latency_us,
       .may_be_zero = true},
      {"mtu", "BYTES", "size of an IP packet; default: 1500", &options.framing.mtu},
      {"cable", "",
       "counts the preamble, check sequence and gap of each frame, which a cable carries and "
       "tc tbf does not count",
       &options.framing.on_cable},
      {"iterations", "N", "iterations of each worker; default: 4", &simulation.iterations},
      {"representatives", "N",
       "how many of the workers with equal links and devices are simulated, each in place of as "
       "many others; default: 16",
       &simulation.representatives},
      {"timeline", "N",
       "adds to the JSON how busy each shard's link is, in N equal parts of the last iteration",
       &simulation.timeline_bins},
      FormatFlag(&format),
  };
  if (const auto code = StartProgram("simulate", kUsage, flags, argc, argv)) return *code;
  const absl::StatusOr<PlannedConfig> config = LoadConfig(options);
  if (!config.ok()) return PrintError(config.status(), kUsageError);
  const absl::Status simulable = CheckSimulation(simulation, *config, format == "json");
  if (!simulable.ok()) return PrintError(simulable, kUsageError);
  absl::StatusOr<ClusterRates> rates = RatesOf(options, *config);
  if (!rates.ok()) return PrintError(rates.status(), kUsageError);
  // The device has been checked with the config.
  const auto layer_times = PredictedLayerTimes(config->model(), config->proto());
  if (!layer_times.ok()) return PrintError(layer_times.status(), kUsageError);
  const absl::Status slow_workers = CheckSlowWorkers(options, *config, *layer_times);
  if (!slow_workers.ok()) return PrintError(slow_workers, kUsageError);

  SimulateResult result;
  result.config = &*config;
  result.rates = *std::move(rates);
  result.bound = BoundOf(config->planned_run(), result.rates, *layer_times);
  result.simulation = Simulate(config->planned_run(), result.rates, *layer_times, simulation);
  const double seconds = result.simulation.steady_seconds();
  if (!(seconds < kMostIterationSeconds)) {
    return PrintError(absl::InvalidArgumentError(absl::StrCat(
                          "simulate: an iteration takes ", seconds, " s, allowed: at most ",
                          kMostIterationSeconds, " s, with links and devices that are so fast")),
                      kUsageError);
  }
  if (!(seconds > 0)) {
    return PrintError(
        absl::InvalidArgumentError(absl::StrCat(
            "simulate: an iteration takes no time: nothing that it waits for passes a link, and "
            "workers compute nothing here: ",
            NoComputeReason(config->proto()),
            ", allowed: workers that exchange through links, or that compute")),
        kUsageError);
  }
  std::cout << (format == "json" ? SimulateJson(result) : SimulateText(result));
  return FlushStandardOutput("simulate", 0, kFailure);
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) { return evenshard::Main(argc, argv); }
