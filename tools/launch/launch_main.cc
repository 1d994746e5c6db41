// launch runs a whole cluster on this machine:
//   1. It checks the config and its data, and that each result can be written to a file of its own.
//   2. It gives shards with port 0 a free port.
//   3. With `recovery`, it takes the folder of checkpoints and becomes the coordinator of the run
//      (coordinator.h). A run whose coordinator is in etcd is not for this program.
//   4. It starts the shards and the workers and supervises them (supervisor.h).
//   5. When the workers have succeeded, one has failed, or a signal has ended them, it runs psctl
//      stats and psctl save if they are asked for.
//   6. It ends the shards and says how the run ended.

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/base/clock.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/view_coordinator.h"
#include "common/net/listener.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/local_run.h"
#include "common/process/log.h"
#include "common/process/open_files.h"
#include "common/reader/process_calls.h"
#include "common/security/tls_files.h"
#include "spdlog/spdlog.h"
#include "tools/launch/coordinator.h"
#include "tools/launch/free_port.h"
#include "tools/launch/labelled_output.h"
#include "tools/launch/supervisor.h"
#include "worker/data/formats/dataset.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "Evenshard's launch: a whole run on this machine.\n\n"
    "launch --config=FILE [--set field=value ...] [--save=FILE] [--stats=FILE]\n"
    "       [--summary=FILE] [--trace=FILE] [--resume] [--max_restarts=N] [--log_dir=FOLDER]\n"
    "       [--stdin=RANK] [--name=NAME] [-- PROGRAM ARGUMENT ...]\n\n"
    "Starts all shards and workers of a config on this machine, waits for the workers and then\n"
    "ends the shards. All output goes to standard output, each line behind the name of its\n"
    "process; the last line says whether the run succeeded. If a process fails, the others are\n"
    "ended. No process outlives launch.\n\n"
    "Without PROGRAM the workers are the program `worker`. PROGRAM is for configs with\n"
    "model.from_workers: it is run once for each rank, with RANK, WORLD_SIZE, LOCAL_RANK and\n"
    "LOCAL_WORLD_SIZE in its environment, and with EVENSHARD_CONFIG, EVENSHARD_OVERRIDES and\n"
    "EVENSHARD_COORDINATOR for the library that it joins by. It keeps memory that it frees, "
    "unless\n"
    "the environment has settings of glibc's malloc (MALLOC_MMAP_MAX_).\n\n"
    "With `recovery` in the config, a process that dies is started again, the run goes on as the\n"
    "config says, and the last line says what it survived. --resume begins from the newest "
    "complete\n"
    "checkpoint of an earlier run. With --max_restarts a PROGRAM is also started again when it\n"
    "ends with an exception (worker_loss: WAIT or CONTINUE), each worker at most N times.\n\n"
    "While it goes on, psctl and a Reader find the run by its name (psctl --run=NAME).\n\n"
    "With topology RING there are no shards: worker 0, or with `recovery` the first of those that\n"
    "are left, writes the model of --save when it has trained to the end, and --stats is refused;\n"
    "with PROGRAM --save is too.\n\n"
    "--save and --stats write what the shards have even if a worker fails or the accuracy is too\n"
    "low. After SIGINT, SIGTERM or SIGHUP they do so within limits.shutdown_seconds; a second\n"
    "signal ends everything at once. A shard whose address has port 0 gets a free port.\n\n"
    "Exit code: 0 the run succeeded; 2 wrong usage or config; otherwise that of the process that\n"
    "failed first, 128 + n if signal n killed it; 128 + n after signal n to launch itself; 1 for\n"
    "any other failure.";

constexpr int kFailure = 1;
constexpr int kUsageError = 2;

// Added to limits.shutdown_seconds, within which a process ends by itself.
constexpr absl::Duration kGraceMargin = absl::Seconds(2);

// How long a shard on this machine may take to answer, and how often it is asked.
constexpr absl::Duration kStatsPatience = absl::Seconds(2);
constexpr int kStatsTries = 3;

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  std::string save;
  std::string stats;
  std::string summary;
  std::string trace;
  std::string name;
  std::string log_dir;
  int stdin_rank = -1;    // -1: nobody has it
  int max_restarts = -1;  // -1: not given
  bool resume = false;
  std::string ps;
  std::string worker;
  std::string psctl;
  std::vector<std::string> program;  // of the workers in place of `worker`, with its arguments
};

// Returns the width of the terminal on standard output, or 0 if it is not a terminal.
int TerminalColumns() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

// Returns where a file written to `path` ends up, with all links followed. Nothing need exist
// there.
std::filesystem::path Destination(const std::string& path) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(path, error);
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(place, error); ++i) {
    place = place.parent_path() / std::filesystem::read_symlink(place, error);
  }
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(place, error);
  return error ? place : canonical;
}

// Refuses two results with one destination, because one would replace the other.
absl::Status CheckDistinct(const Options& options) {
  std::map<std::filesystem::path, std::string> users;  // by destination: "--save=a"
  for (const auto& [flag, path] :
       {std::pair("--save=", options.save), std::pair("--stats=", options.stats),
        std::pair("--summary=", options.summary), std::pair("--trace=", options.trace)}) {
    if (path.empty()) continue;
    const std::string user = absl::StrCat(flag, path);
    const auto [other, is_first] = users.emplace(Destination(path), user);
    if (!is_first) {
      return absl::InvalidArgumentError(
          absl::StrCat(other->second, " and ", user, " are the same file; give each its own"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckData(const PlannedConfig& config) {
  if (config.is_from_workers() || config.proto().compute().backend() == Compute::EMULATED) {
    return absl::OkStatus();
  }
  return OpenDatasets(config).status();
}

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
std::vector<std::string> WorkerEnvironment(const Options& options, const PlannedConfig& config,
                                           uint32_t rank, const CoordinatorServer* coordinator) {
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

// The config as launch itself reads it, which speaks as an operator.
absl::StatusOr<PlannedConfig> LoadConfig(const Options& options) {
  std::vector<std::string> overrides = {NameOverride({.role = Role::kOperator})};
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  return PlannedConfig::Load(options.config, overrides);
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

// `coordinator` is null without `recovery`. The config must outlive the run.
SupervisedRun MakeRun(const Options& options, const PlannedConfig& config, int columns,
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

// Checks that the program that brings the model is the one that trains it.
absl::Status CheckProgram(const Options& options, const PlannedConfig& config) {
  if (options.program.empty() != config.is_from_workers()) {
    return (options.summary.empty() && options.trace.empty()) || options.program.empty()
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     "--summary and --trace are of the program worker, allowed: without PROGRAM");
  }
  return config.is_from_workers()
             ? config.FieldError("model.from_workers",
                                 "needs a program that brings the model, allowed: launch "
                                 "--config=FILE -- PROGRAM ARGUMENT ...")
             : config.FieldError("model",
                                 "is trained by the program worker, allowed with a program of your "
                                 "own: model { from_workers {} }");
}

// The name of the run, if none is given: that of the program or the config, and the process.
std::string DefaultName(const Options& options) {
  constexpr size_t kLongest = 200;
  // And not a text, as behind -c.
  const auto is_script = [](const std::string& word) {
    return !word.empty() && word[0] != '-' && word.size() < kLongest &&
           std::all_of(word.begin(), word.end(), [](char c) {
             return absl::ascii_isalnum(c) || absl::StrContains("/._-", c);
           });
  };
  const auto& program = options.program;
  // Of "python3 -m train" and "python3 train.py", the last word before the arguments.
  const auto script = program.size() > 1
                          ? std::find_if(program.begin() + 1, program.end(), is_script)
                          : program.end();
  const std::filesystem::path path = script != program.end() ? *script
                                     : program.empty()       ? options.config
                                                             : program[0];
  return absl::StrCat(path.stem().string(), "-", getpid());
}

// Enters the run under its name, which a run without one gets here.
absl::StatusOr<LocalRunEntry> Enter(Options& options) {
  LocalRun run = {options.name, std::filesystem::absolute(options.config).string(),
                  options.overrides};
  const bool is_given = !run.name.empty();
  const std::string name = is_given ? run.name : DefaultName(options);
  // In a container of its own another launch may have the same process number.
  for (int i = 1;; ++i) {
    run.name = i == 1 ? name : absl::StrCat(name, "-", i);
    absl::StatusOr<LocalRunEntry> entry = LocalRunEntry::Write(run);
    if (!is_given && absl::IsAlreadyExists(entry.status())) continue;
    options.name = run.name;
    return entry;
  }
}

absl::Status CheckWorkers(const Options& options, const PlannedConfig& config) {
  if (options.stdin_rank >= config.workers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stdin: is ", options.stdin_rank, ", allowed: 0 to ", config.workers() - 1));
  }
  if (options.max_restarts > 0 && config.proto().recovery().worker_loss() == Recovery::FAIL) {
    return absl::InvalidArgumentError(
        "--max_restarts: needs recovery.worker_loss WAIT or CONTINUE in the config, so that the "
        "run outlives a worker");
  }
  return absl::OkStatus();
}

// Refuses what only shards could give.
absl::Status CheckTopology(const Options& options, const PlannedConfig& config) {
  if (config.is_ring() && !options.program.empty() && !options.save.empty()) {
    return absl::InvalidArgumentError(
        "--save: is given with topology RING and a program of your own, and nobody but that has "
        "the model, allowed: without it; let rank 0 of the program save its model");
  }
  return options.stats.empty() ? absl::OkStatus() : config.CheckHasShards();
}

absl::Status CheckRecovery(const Options& options, const PlannedConfig& config) {
  if (config.proto().recovery().has_etcd()) {
    return config.FieldError(
        "recovery.etcd",
        "is for a run on several machines, where a process manager such as systemd starts each ps "
        "and each worker and starts it again when it fails; launch runs everything on this machine "
        "and decides itself which process has which role, allowed here: no recovery.etcd");
  }
  if (!options.resume || config.proto().recovery().has_checkpoint()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--resume: needs recovery.checkpoint in the config, which says where checkpoints are");
}

// Refuses a run in which no process could open all its connections.
absl::Status CheckOpenFiles(const PlannedConfig& config) {
  const ClusterConfig& proto = config.proto();
  const int64_t to_each = proto.limits().connections() + 1;
  const int64_t needed = config.is_ring()
                             ? to_each + Listener::FilesFor(to_each, proto.ring().address(0), proto)
                             : std::max(to_each * config.processes(),
                                        Listener::FilesFor(to_each * config.workers(),
                                                           config.process_address(0), proto));
  return ReserveOpenFiles(
      needed, absl::StrCat(config.workers(), " workers and ", config.processes(), " shards"));
}

// Every process of the run reads the config, also one that is started again.
absl::Status CheckReadableAgain(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::is_fifo(status)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--config: ", path,
                   " is a pipe, which can be read once, and every process of "
                   "the run reads the config, allowed: a file"));
}

int Launch(Options options) {
  if (const absl::Status readable = CheckReadableAgain(options.config); !readable.ok()) {
    return PrintError(readable, kUsageError);
  }
  absl::StatusOr<PlannedConfig> config = LoadConfig(options);
  absl::Status status = config.status();
  if (status.ok()) status = CheckSecurity(config->proto());
  if (status.ok()) status = CheckDistinct(options);
  if (status.ok()) status = CheckProgram(options, *config);
  if (status.ok()) status = CheckTopology(options, *config);
  if (status.ok()) status = CheckRecovery(options, *config);
  if (status.ok()) status = CheckWorkers(options, *config);
  if (status.ok()) status = CheckOpenFiles(*config);
  if (status.ok()) status = CheckData(*config);
  if (!status.ok()) return PrintError(status, kUsageError);
  for (const std::string& path : {options.save, options.stats, options.summary, options.trace}) {
    if (status.ok() && !path.empty()) status = CheckWritable(path);
  }
  const auto ports = FreePortOverrides(*config);
  if (status.ok()) status = ports.status();
  if (!status.ok()) return PrintError(status, kFailure);
  options.overrides.insert(options.overrides.end(), ports->begin(), ports->end());
  config = LoadConfig(options);
  if (!config.ok()) return PrintError(config.status(), kUsageError);
  const auto entry = Enter(options);
  if (absl::IsInvalidArgument(entry.status()) || absl::IsAlreadyExists(entry.status())) {
    return PrintError(entry.status(), kUsageError);
  }
  if (!entry.ok()) {  // the run does not need it
    spdlog::warn("the run cannot be found by its name: {}", std::string(entry.status().message()));
  }

  BlockSupervisedSignals();
  const RealClock clock;
  RealStorage storage;
  std::unique_ptr<RunCheckpoints> checkpoints;
  std::unique_ptr<CoordinatorServer> coordinator;
  if (config->proto().has_recovery()) {
    ViewCoordinator::Settings settings =
        ViewCoordinator::SettingsOf(config->proto(), config->run_fingerprint());
    settings.run = NewIncarnation();
    if (config->proto().recovery().has_checkpoint()) {
      auto opened = RunCheckpoints::Open(
          *config, settings.run,
          options.resume ? RunCheckpoints::Start::kResumed : RunCheckpoints::Start::kNew,
          absl::StrCat("launch, process ", getpid()), &storage, clock);
      if (!opened.ok()) {
        return PrintError(opened.status(),
                          absl::IsInvalidArgument(opened.status()) ? kUsageError : kFailure);
      }
      checkpoints = *std::move(opened);
      settings.resume = checkpoints->resume();
    }
    auto started = CoordinatorServer::Start(
        settings,
        [&checkpoints](bool passes_over_unreadable) {
          return checkpoints->Newest(passes_over_unreadable);
        },
        &clock);
    if (!started.ok()) return PrintError(started.status(), kFailure);
    coordinator = *std::move(started);
  }

  const int columns = TerminalColumns();
  LabelledOutput output(columns > 0, [](absl::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
  if (!options.log_dir.empty()) {
    if (status = output.KeepIn(options.log_dir); !status.ok()) return PrintError(status, kFailure);
  }
  return Supervise(MakeRun(options, *config, columns, coordinator.get()), &output);
}

int Main(int argc, char** argv) {
  // Built by Bazel, this program is bazel-bin/tools/launch/launch.
  const std::filesystem::path tools =
      std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  Options options;
  options.ps = tools.parent_path() / "server" / "ps";
  options.worker = tools.parent_path() / "worker" / "worker";
  options.psctl = tools / "psctl" / "psctl";
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &options.config, true},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated",
       &options.overrides},
      {"save", "FILE", "writes the trained model to this file in the safetensors layout",
       &options.save},
      {"stats", "FILE",
       "writes the shards' final statistics to this file, as psctl stats --format=json does",
       &options.stats},
      {"summary", "FILE", "has worker 0 write its summary of the run to this file as JSON",
       &options.summary},
      {"trace", "FILE", "has worker 0 write a trace of its work to this file, for Perfetto",
       &options.trace},
      {"resume", "", "begins from the newest complete checkpoint in recovery.checkpoint.folder",
       &options.resume},
      {"max_restarts", "N", "how often each worker is started again, after exceptions too",
       &options.max_restarts},
      {"name", "NAME", "by which psctl and a Reader find the run; default: PROGRAM's, and a number",
       &options.name},
      {"log_dir", "FOLDER", "writes each process's output to a file of its own there, too",
       &options.log_dir},
      {"stdin", "RANK", "gives this worker launch's standard input and output, as for a debugger",
       &options.stdin_rank},
      {"ps", "FILE", "the program of a shard; default: the one built with launch", &options.ps},
      {"worker", "FILE", "the program of a worker; default: the one built with launch",
       &options.worker},
      {"psctl", "FILE",
       "the program that --stats and --save run; default: the one built with launch",
       &options.psctl},
  };
  char** const end = std::find_if(
      argv, argv + argc, [](const char* argument) { return std::strcmp(argument, "--") == 0; });
  if (end != argv + argc) options.program.assign(end + 1, argv + argc);
  if (const auto code = StartProgram("launch", kUsage, flags, static_cast<int>(end - argv), argv)) {
    return *code;
  }
  return Launch(std::move(options));
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) { return evenshard::Main(argc, argv); }
