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
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/clock.h"
#include "common/base/incarnation.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/view_coordinator.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/local_run.h"
#include "common/process/log.h"
#include "common/security/tls_files.h"
#include "spdlog/spdlog.h"
#include "tools/launch/coordinator.h"
#include "tools/launch/free_port.h"
#include "tools/launch/interruptible_output.h"
#include "tools/launch/labelled_output.h"
#include "tools/launch/launch_checks.h"
#include "tools/launch/launch_options.h"
#include "tools/launch/launch_run.h"
#include "tools/launch/supervisor.h"

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

// Returns the width of the terminal on standard output, or 0 if it is not a terminal.
int TerminalColumns() {
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

// The config as launch itself reads it, which speaks as an operator.
absl::StatusOr<PlannedConfig> LoadConfig(const LaunchOptions& options) {
  std::vector<std::string> overrides = {NameOverride({.role = Role::kOperator})};
  overrides.insert(overrides.end(), options.overrides.begin(), options.overrides.end());
  return PlannedConfig::Load(options.config, overrides);
}

// The name of the run, if none is given: that of the program or the config, and the process.
std::string DefaultName(const LaunchOptions& options) {
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
  const std::string stem = path.stem().string();
  const size_t begin = stem.find_first_not_of('.');  // of "node ." nothing is left
  return absl::StrCat(begin == std::string::npos ? "run" : stem.substr(begin), "-", getpid());
}

// Enters the run under its name, which a run without one gets here.
absl::StatusOr<LocalRunEntry> Enter(LaunchOptions& options) {
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

int Launch(LaunchOptions options) {
  // A process that is started again reads it too.
  const absl::Status readable =
      CheckReadableAgain(options.config, "every process of the run reads the config");
  if (!readable.ok()) return PrintError(readable, kUsageError);
  absl::StatusOr<PlannedConfig> config = LoadConfig(options);
  absl::Status status = config.status();
  if (status.ok()) status = CheckLaunch(options, *config);
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

  // Before the signals are blocked: it takes long to read a large checkpoint, and nothing that a
  // signal would leave behind is there yet.
  const RealClock clock;
  RealStorage storage;
  const uint64_t run = NewIncarnation();
  std::unique_ptr<RunCheckpoints> checkpoints;
  if (config->proto().recovery().has_checkpoint()) {
    auto opened = RunCheckpoints::Open(
        *config, run,
        options.resume ? RunCheckpoints::Start::kResumed : RunCheckpoints::Start::kNew,
        absl::StrCat("launch, process ", getpid()), &storage, clock);
    if (!opened.ok()) {
      return PrintError(opened.status(),
                        absl::IsInvalidArgument(opened.status()) ? kUsageError : kFailure);
    }
    checkpoints = *std::move(opened);
  }

  const sigset_t ending = BlockSupervisedSignals();
  const auto entry = Enter(options);
  if (absl::IsInvalidArgument(entry.status()) || absl::IsAlreadyExists(entry.status())) {
    return PrintError(entry.status(), kUsageError);
  }
  if (!entry.ok()) {  // the run does not need it
    spdlog::warn("the run cannot be found by its name: {}", std::string(entry.status().message()));
  }
  std::unique_ptr<CoordinatorServer> coordinator;
  if (config->proto().has_recovery()) {
    ViewCoordinator::Settings settings =
        ViewCoordinator::SettingsOf(config->proto(), config->run_fingerprint());
    settings.run = run;
    if (checkpoints != nullptr) settings.resume = checkpoints->resume();
    auto started = CoordinatorServer::Start(
        settings,
        [&checkpoints](bool passes_over_unreadable) {
          return checkpoints->Newest(passes_over_unreadable);
        },
        &clock);
    if (!started.ok()) return PrintError(started.status(), kFailure);
    coordinator = *std::move(started);
    if (!options.program.empty()) coordinator->WorkersArePrograms();
  }

  const int columns = TerminalColumns();
  InterruptibleOutput standard_output(STDOUT_FILENO, ending);
  absl::Status written;  // the first error
  LabelledOutput output(columns > 0, [&](absl::string_view text) {
    const absl::Status status = standard_output.Write(text);
    if (written.ok() && !status.ok()) PrintError(written = status, kFailure);
  });
  if (!options.log_dir.empty()) {
    if (status = output.KeepIn(options.log_dir); !status.ok()) return PrintError(status, kFailure);
  }
  const int code = Supervise(MakeRun(options, *config, columns, coordinator.get()), &output);
  // Nobody misses the rest of what a terminal has shown that is gone.
  return code == 0 && !written.ok() && columns == 0 ? kFailure : code;
}

int Main(int argc, char** argv) {
  // Built by Bazel, this program is bazel-bin/tools/launch/launch.
  const std::filesystem::path tools =
      std::filesystem::canonical("/proc/self/exe").parent_path().parent_path();
  LaunchOptions options;
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
