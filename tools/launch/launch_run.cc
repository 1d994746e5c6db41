#include "tools/launch/launch_run.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/reader/process_calls.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

// Added to limits.shutdown_seconds, within which a process ends by itself.
constexpr absl::Duration kGraceMargin = absl::Seconds(2);

// How long a shard on this machine may take to answer, and how often it is asked.
constexpr absl::Duration kStatsPatience = absl::Seconds(2);
constexpr int kStatsTries = 3;

// Lets glibc keep memory that is freed (see mallopt(3)). It would return that of each large
// gradient to the system, which has to find and clear it page by page in the next iteration.
std::vector<std::string> MemorySettings() {
  for (const char* own : {"MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"}) {
    if (std::getenv(own) != nullptr) return {};
  }
  return {"MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=1099511627776"};
}

// What a program that brings the model finds in its environment: torchrun's variables, those of
// python/evenshard, and how memory is managed.
std::vector<std::string> WorkerEnvironment(const LaunchOptions& options,
                                           const PlannedConfig& config, uint32_t rank,
                                           const CoordinatorServer* coordinator) {
  std::vector<std::string> environment = MemorySettings();
  environment.insert(
      environment.end(),
      {absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank),
       absl::StrCat("WORLD_SIZE=", config.workers()),
       absl::StrCat("LOCAL_WORLD_SIZE=", config.workers()),
       absl::StrCat("EVENSHARD_CONFIG=", std::filesystem::absolute(options.config).string()),
       absl::StrCat("EVENSHARD_OVERRIDES=", absl::StrJoin(options.overrides, "\n")),
       absl::StrCat("EVENSHARD_COORDINATOR=", coordinator == nullptr ? "" : coordinator->address()),
       absl::StrCat("EVENSHARD_RESTARTS=", options.max_restarts > 0 ? "1" : "0")});
  return environment;
}

// Returns an error if the worker, which has ended, had not joined the run: the others wait for it.
// Joins are shard 0's to say; one that does not answer proves nothing. With a coordinator, which
// has a worker that is needed started again, it is only an error if no worker has joined.
absl::Status CheckJoined(const PlannedConfig& config, uint32_t rank,
                         const CoordinatorServer* coordinator) {
  bool joined = false;
  if (coordinator != nullptr) {
    joined = coordinator->heard_worker();
  } else {
    absl::StatusOr<ShardStats> stats = absl::DeadlineExceededError("not asked");
    for (int i = 0; i < kStatsTries && absl::IsDeadlineExceeded(stats.status()); ++i) {
      stats = GetStats(config, {config.address(0)}, kStatsPatience).front();
    }
    // Before any worker has declared a model, there are no statistics. A call is cancelled in the
    // moment in which shard 0 has got one.
    const absl::Status& status = stats.status();
    joined = stats.ok() ? stats->worker(static_cast<int>(rank)).state() != WorkerStats::NEVER_JOINED
                        : !absl::IsUnavailable(status) && !absl::IsCancelled(status);
    if (joined && !stats.ok()) {
      spdlog::warn("shard 0 does not say whether worker {} had joined: {}", rank,
                   std::string(status.message()));
    }
  }
  if (joined) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "has never joined the run: its program has ended with exit code 0 and has made neither an "
      "evenshard.Optimizer nor an evenshard.Worker (in C: evenshard_join)");
}

}  // namespace

SupervisedRun MakeRun(const LaunchOptions& options, const PlannedConfig& config, int columns,
                      CoordinatorServer* coordinator) {
  const auto command = [&](const std::string& program, std::vector<std::string> arguments) {
    std::vector<std::string> command = {program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    command.push_back(absl::StrCat("--config=", options.config));
    for (const std::string& override : options.overrides) {
      command.push_back(absl::StrCat("--set=", override));
    }
    if (const auto level = spdlog::get_level(); level != spdlog::level::info) {
      const auto name = spdlog::level::to_string_view(level);
      command.push_back(absl::StrCat("--log_level=", std::string(name.data(), name.size())));
    }
    return command;
  };

  const auto member = [&](const std::string& label, const std::string& program,
                          std::vector<std::string> arguments, ProcessRole role) {
    ProcessSpec spec;
    spec.label = label;
    if (coordinator != nullptr) {
      arguments.push_back(absl::StrCat("--coordinator=", coordinator->address()));
      spec.role = role;
    }
    spec.command = command(program, arguments);
    return spec;
  };

  SupervisedRun run;
  run.recovery = coordinator;
  run.grace = absl::Seconds(config.proto().limits().shutdown_seconds()) + kGraceMargin;
  if (options.max_restarts >= 0) run.max_restarts = options.max_restarts;
  const uint32_t processes = config.shards() + config.proto().recovery().spare_size();
  for (uint32_t index = 0; index < processes; ++index) {
    run.services.push_back(member(absl::StrCat("ps ", index), options.ps,
                                  {absl::StrCat("--shard=", index)}, {false, index}));
  }
  Stage workers;
  for (uint32_t rank = 0; rank < static_cast<uint32_t>(config.workers()); ++rank) {
    std::vector<std::string> arguments = {absl::StrCat("--rank=", rank)};
    // With recovery the first of the workers that come to the end saves.
    if (config.is_ring() && !options.save.empty() && (rank == 0 || coordinator != nullptr)) {
      arguments.push_back(absl::StrCat("--save=", options.save));
    }
    if (rank == 0) {
      for (const auto& [flag, path] :
           {std::pair("--summary=", options.summary), std::pair("--trace=", options.trace)}) {
        if (!path.empty()) arguments.push_back(absl::StrCat(flag, path));
      }
    }
    ProcessSpec& worker = workers.processes.emplace_back(
        member(absl::StrCat("worker ", rank), options.worker, arguments, {true, rank}));
    if (options.program.empty()) continue;
    worker.command = options.program;
    worker.environment = WorkerEnvironment(options, config, rank, coordinator);
    if (coordinator != nullptr || !config.is_ring()) {
      worker.check = [&config, rank, coordinator] {
        return CheckJoined(config, rank, coordinator);
      };
    }
  }
  // Only rank 0 draws a live line: it gets a terminal if launch has one, narrower by the label.
  workers.processes[0].terminal_columns =
      std::max(0, columns - static_cast<int>(sizeof("[worker 0]")));
  if (options.stdin_rank >= 0) workers.processes[options.stdin_rank].has_console = true;
  run.stages.push_back(std::move(workers));
  const auto write = [&](const std::string& verb, std::vector<std::string> arguments,
                         const std::string& what, const std::string& path) {
    if (path.empty() || config.is_ring()) return;
    arguments.insert(arguments.begin(), verb);
    arguments.push_back(absl::StrCat("--out=", path));
    run.stages.push_back({.processes = {{.label = verb,
                                         .command = command(options.psctl, arguments),
                                         .result = absl::StrCat(what, path)}},
                          .after_failure = true});
  };
  write("stats", {"--format=json"}, "the statistics are in ", options.stats);
  write("save", {}, "the model is in ", options.save);
  return run;
}

}  // namespace evenshard
