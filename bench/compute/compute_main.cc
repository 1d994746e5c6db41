// compute measures how fast a backend computes gradients, without exchange.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/compute/compute_bench.h"
#include "bench/quantile.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "nlohmann/json.hpp"

namespace {

constexpr char kUsage[] =
    "Evenshard's compute --config=FILE: verifies the gradients of the config's compute backend\n"
    "and then measures its images per second in one worker, without exchange. An iteration\n"
    "consists of the forward and the backward pass, and on a GPU of the copy of the batch to it;\n"
    "parameters and gradients stay there. There is no update, and no data is loaded.\n"
    "Exit code: 0, 1 after a failure, 2 for a wrong command line or config.";

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int iterations = 20;
  int warmup = 5;
  int rounds = 5;
  bool on_request = false;
  std::string json;
  std::string log_level;
};

int Fail(const absl::Status& status) {
  std::cerr << "compute: " << status.message() << "\n";
  return 1;
}

int Run(const CommandLine& command) {
  evenshard::SetUpProcess();
  for (const auto& [flag, value] :
       {std::pair("iterations", command.iterations), std::pair("rounds", command.rounds)}) {
    if (value >= 1) continue;
    std::cerr << "--" << flag << "=" << value << ", allowed: at least 1\n";
    return 2;
  }
  absl::StatusOr<evenshard::PlannedConfig> config =
      evenshard::PlannedConfig::Load(command.config, command.overrides);
  const absl::Status usable = config.ok() ? config->CheckOwnModel() : config.status();
  if (!usable.ok()) {
    std::cerr << usable.message() << "\n";
    return 2;
  }
  const evenshard::RealClock clock;
  absl::StatusOr<std::unique_ptr<evenshard::ComputeBench>> bench =
      evenshard::ComputeBench::Create(*config, &clock);
  if (!bench.ok()) return Fail(bench.status());
  const absl::StatusOr<evenshard::InitialPass> initial = (*bench)->Verify();
  if (!initial.ok()) return Fail(initial.status());
  if (command.warmup > 0) {
    const absl::StatusOr<double> warmed = (*bench)->ImagesPerSecond(command.warmup);
    if (!warmed.ok()) return Fail(warmed.status());
  }
  absl::PrintF(
      "verified: loss %.3f and gradient norm %.3g at the start, and a step lowers the loss\n",
      initial->loss, initial->gradient_norm);
  std::vector<double> rounds;
  for (int round = 0; round < command.rounds; ++round) {
    std::fflush(stdout);
    std::string request;
    if (command.on_request && !std::getline(std::cin, request)) break;
    const absl::StatusOr<double> rate = (*bench)->ImagesPerSecond(command.iterations);
    if (!rate.ok()) return Fail(rate.status());
    rounds.push_back(*rate);
    absl::PrintF("round %d: %.2f images/s\n", round + 1, *rate);
  }
  if (rounds.empty()) return 0;
  const auto [low, high] = std::minmax_element(rounds.begin(), rounds.end());
  const double median = evenshard::Quantile(rounds, 0.5);
  absl::PrintF("%s, batch of %d: %.1f images/s (%.1f-%.1f), median of %d rounds\n",
               config->model().name(), config->proto().training().batch_size(), median, *low, *high,
               rounds.size());
  if (command.json.empty()) return 0;
  std::ofstream file(command.json);
  file << nlohmann::ordered_json{{"images_per_second", rounds},
                                 {"median", median},
                                 {"batch_size", config->proto().training().batch_size()},
                                 {"iterations", command.iterations},
                                 {"loss", initial->loss}}
              .dump(2)
       << "\n";
  if (!file.flush()) {
    std::cerr << "compute: cannot write --json=" << command.json << "\n";
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine command;
  const std::vector<evenshard::Flag> flags = {
      {.name = "config",
       .value = "FILE",
       .help = "a ClusterConfig; only model, compute, training and update.deterministic matter",
       .target = &command.config,
       .required = true},
      {.name = "set",
       .value = "FIELD=VALUE",
       .help = "overrides a field of the config; repeatable",
       .target = &command.overrides},
      {.name = "iterations",
       .value = "N",
       .help = "iterations of a round; default 20",
       .target = &command.iterations},
      {.name = "warmup",
       .value = "N",
       .help = "iterations before the first round; default 5",
       .target = &command.warmup},
      {.name = "rounds",
       .value = "N",
       .help = "how many rounds; default 5",
       .target = &command.rounds},
      {.name = "on-request",
       .value = "",
       .help = "waits for a line of standard input before each round, so that rounds of several "
               "programs can be taken in turn; ends when the input ends",
       .target = &command.on_request},
      {.name = "json",
       .value = "FILE",
       .help = "writes the figures to this file as JSON",
       .target = &command.json},
      evenshard::LogLevelFlag(&command.log_level),
  };
  const std::optional<int> exit_code = evenshard::ParseCommandLine(kUsage, flags, argc, argv);
  if (exit_code.has_value()) return *exit_code;
  evenshard::SetUpLog("compute", command.log_level);
  return Run(command);
}
