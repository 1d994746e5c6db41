// ps: one parameter-server shard. Runs until SIGTERM, SIGINT or the Shutdown RPC.

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/checkpoint/storage/storage.h"
#include "common/control/etcd/etcd_threads.h"
#include "common/control/etcd/make_view_link.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/relayed_link.h"
#include "common/net/listener.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/process/open_files.h"
#include "common/process/process_setup.h"
#include "common/security/tls_files.h"
#include "server/rpc/declaration_wait.h"
#include "server/server.h"
#include "server/summary.h"
#include "server/view_candidate.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "Evenshard's ps: serves one shard of the parameters.\n\n"
    "ps --config=FILE --shard=I [--resume]\n\n"
    "SIGTERM or SIGINT ends it within limits.shutdown_seconds. Exit code: 0 when the run went\n"
    "well, 1 after a failure, 2 for a wrong command line or config.";

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int shard = -1;
  std::string coordinator;
  bool resume = false;
};

// As long as it lives, one of `signals` ends the process: nothing is served yet that would have to
// end in order.
std::jthread EndAtSignal(const sigset_t& signals) {
  return std::jthread([signals](const std::stop_token& is_over) {
    const timespec pause = absl::ToTimespec(absl::Milliseconds(10));
    while (!is_over.stop_requested()) {
      const int signal = sigtimedwait(&signals, nullptr, &pause);
      if (signal <= 0) continue;
      spdlog::info("{}: ending before the checkpoint to begin from is read", strsignal(signal));
      _exit(0);
    }
  });
}

// Returns what a run without views begins from. The process of shard 0 holds the run's folder of
// checkpoints from now on. Reads all of a checkpoint, for minutes if it is large, unless one of
// `signals` ends the process.
absl::StatusOr<View> FindStart(const PlannedConfig& config, int shard, bool resume,
                               const sigset_t& signals, Storage* storage, const Clock& clock,
                               std::unique_ptr<RunCheckpoints>* checkpoints) {
  View start;
  start.set_run(config.run_fingerprint());
  start.set_generation(1);
  if (!config.proto().recovery().has_checkpoint()) {
    if (!resume) return start;
    return config.FieldError("recovery.checkpoint", "is missing, and --resume needs it");
  }
  const std::jthread watch = EndAtSignal(signals);
  std::optional<ViewCoordinator::Checkpoint> found;
  if (shard == 0) {
    using Start = RunCheckpoints::Start;
    ASSIGN_OR_RETURN(*checkpoints, RunCheckpoints::Open(config, config.run_fingerprint(),
                                                        resume ? Start::kResumed : Start::kNew,
                                                        "ps 0", storage, clock));
    found = (*checkpoints)->resume();
  } else {
    ASSIGN_OR_RETURN(found, RunCheckpoints::FindStart(config, resume, storage, clock));
  }
  if (!found.has_value()) return start;
  start.set_generation(found->generation + 1);
  start.set_checkpoint(found->name);
  *start.mutable_worker_set() = found->worker_set;
  return start;
}

// Returns the exit code of a process that ends because of these: 2 if starting it again could not
// help.
int ExitCode(const absl::Status& views_ended, const absl::Status& candidate) {
  if (absl::IsFailedPrecondition(views_ended) || absl::IsInvalidArgument(candidate)) return 2;
  return views_ended.ok() && candidate.ok() ? 0 : 1;
}

// Returns an error if the config asks for what needs views.
absl::Status CheckWithoutViews(const PlannedConfig& config) {
  const Recovery& recovery = config.proto().recovery();
  const char* const field = recovery.replicas() > 0                    ? "recovery.replicas"
                            : recovery.worker_loss() != Recovery::FAIL ? "recovery.worker_loss"
                            : recovery.checkpoint().has_every_seconds() && config.is_synchronous()
                                ? "recovery.checkpoint.every_seconds"
                                : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return config.FieldError(field,
                           "needs a coordinator, which decides which process has which role, "
                           "allowed: a run by launch, or recovery.etcd");
}

void RequestShutdown() { kill(getpid(), SIGTERM); }

// A link to the run's views that is started before the Server, and the incarnation that it tells.
struct EarlyLink {
  std::unique_ptr<RelayedLink> link;  // null without views
  uint64_t incarnation = 0;
};

// Waits until workers have declared the model. Returns nothing if one of `signals` came first.
// Errors: those of DeclarationWait; why the views have ended.
absl::StatusOr<std::optional<PlannedConfig>> AwaitDeclaration(const PlannedConfig& config,
                                                              int process, ViewLink* views,
                                                              const sigset_t& signals,
                                                              EarlyLink* early) {
  ASSIGN_OR_RETURN(const std::unique_ptr<DeclarationWait> wait,
                   DeclarationWait::Start({.config = &config,
                                           .process = process,
                                           .has_views = views != nullptr,
                                           .request_shutdown = RequestShutdown}));
  if (views != nullptr) {
    early->link = std::make_unique<RelayedLink>(
        views,
        ViewLink::Listener{.on_view = [&wait](const View& view) { wait->Adopt(view); },
                           .on_end = [&wait](const absl::Status& reason) { wait->Fail(reason); }});
    early->incarnation = NewIncarnation();
    ProcessState state;
    state.set_ps(process);
    state.set_incarnation(early->incarnation);
    state.set_address(config.process_address(process));
    state.set_config_fingerprint(config.run_fingerprint());
    early->link->Announce(state);
  }
  spdlog::info("Evenshard ps {} on {} waits for worker 0 to declare the model", process,
               config.process_address(process));
  std::optional<absl::StatusOr<PlannedConfig>> declared;
  bool is_signalled = false;
  while (!declared.has_value() && !is_signalled) {
    const timespec pause = absl::ToTimespec(absl::Milliseconds(10));
    is_signalled = sigtimedwait(&signals, nullptr, &pause) > 0;
    declared = wait->declared();
  }
  // The Server will hear the latest view.
  if (early->link != nullptr) {
    early->link->Start({.on_view = [](const View&) {}, .on_end = [](const absl::Status&) {}});
  }
  if (is_signalled) return std::nullopt;
  if (!declared->ok()) return declared->status();
  return std::optional(**std::move(declared));
}

int Run(const CommandLine& command) {
  // These signals are awaited below. They are blocked before any thread starts, so that none of the
  // threads receives one.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  SetUpProcess();

  std::vector<std::string> overrides = command.overrides;
  overrides.push_back(NameOverride({.role = Role::kShard, .index = command.shard}));
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(command.config, overrides);
  absl::Status usable = config.ok() ? config->CheckHasShards() : config.status();
  if (usable.ok()) usable = CheckAndLogSecurity(config->proto());
  if (!usable.ok()) return LogError(usable, 2);
  if (command.shard < 0 || command.shard >= config->processes()) {
    spdlog::error("there is no shard {}: the config has {} shards, 0 to {}", command.shard,
                  config->processes(), config->processes() - 1);
    return 2;
  }
  const int64_t connections = config->workers() * (config->proto().limits().connections() + 1);
  const absl::Status files = ReserveOpenFiles(
      Listener::FilesFor(connections, config->process_address(command.shard), config->proto()),
      absl::StrCat("connections of ", config->workers(), " workers"));
  if (!files.ok()) return LogError(files, 1);
  // Objects that are made later use those before them.
  const absl::StatusOr<PlannedConfig> undeclared = config;
  RealClock clock;
  RealStorage storage;
  EarlyLink early;
  std::unique_ptr<ViewLink> link = MakeViewLink(command.coordinator, config->proto(), &clock);
  std::unique_ptr<ViewCandidate> candidate;  // null unless etcd has the views
  const auto become_candidate = [&](const PlannedConfig& config) {
    if (!command.coordinator.empty() || !config.proto().recovery().has_etcd()) return;
    candidate = std::make_unique<ViewCandidate>(
        ViewCandidate::Options{.config = &config,
                               .process = command.shard,
                               .resume = command.resume,
                               .etcd = EtcdThreads::Of(config.proto(), &clock),
                               .run = NewIncarnation(),
                               .storage = &storage,
                               .request_shutdown = RequestShutdown});
  };
  if (!config->has_model()) {
    become_candidate(*undeclared);
    absl::StatusOr<std::optional<PlannedConfig>> declared =
        AwaitDeclaration(*undeclared, command.shard, link.get(), signals, &early);
    if (!declared.ok()) {
      return LogError(declared.status(), ExitCode(declared.status(), declared.status()));
    }
    if (!declared->has_value()) {
      spdlog::info("ending before worker 0 has declared the model");
      return ExitCode(absl::OkStatus(),
                      candidate == nullptr ? absl::OkStatus() : candidate->failure());
    }
    config = **std::move(declared);
  }
  absl::StatusOr<View> start = View();
  std::unique_ptr<RunCheckpoints> checkpoints;
  if (link == nullptr) {
    const absl::Status possible = CheckWithoutViews(*config);
    start = possible.ok() ? FindStart(*config, command.shard, command.resume, signals, &storage,
                                      clock, &checkpoints)
                          : possible;
    if (!start.ok()) {
      return LogError(start.status(), absl::IsInvalidArgument(start.status()) ? 2 : 1);
    }
  }
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start({
      .config = &*config,
      .shard = command.shard,
      .incarnation = early.incarnation,
      .clock = &clock,
      .view_link = early.link != nullptr ? early.link.get() : link.get(),
      .start = *start,
      .request_shutdown = RequestShutdown,
      .release_memory = ReleaseFreeMemory,
  });
  if (!server.ok()) return LogError(server.status(), 1);
  spdlog::info(
      "Evenshard ps {} is listening on {}: {}", command.shard, (*server)->address(),
      command.shard < config->shards() ? Ownership(*config, command.shard) : "a spare process");
  if (config->proto().partition().scheme() == Partition::AUTO) {
    spdlog::info("{}", AutoChoice(*config));
  }
  if (candidate == nullptr) become_candidate(*config);

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: ending", strsignal(signal));
  std::vector<ShardStats> all;
  for (int slot = 0; slot < config->shards(); ++slot) {
    if (absl::StatusOr<ShardStats> stats = (*server)->host().Stats(slot); stats.ok()) {
      all.push_back(*std::move(stats));
    }
  }
  (*server)->Shutdown();
  // The link calls the server, and gives up this process's roles, so that it may answer no call any
  // more.
  link.reset();
  const absl::Status candidate_failure =
      candidate == nullptr ? absl::OkStatus() : candidate->failure();
  candidate.reset();
  bool failed = false;
  for (const ShardStats& stats : all) {
    spdlog::info("{}", Summary(stats));
    // Programs of the workers' own may have other reasons.
    if (stats.skipped_pushes() > 0 && !config->is_from_workers()) {
      spdlog::warn("{} pushes brought no gradient (`skip`): it was not finite, or was left out",
                   FormatCount(stats.skipped_pushes()));
    }
    failed |= !stats.failure().empty();
  }
  const int code = ExitCode((*server)->views_ended(), candidate_failure);
  return code == 0 && failed ? 1 : code;
}

int Main(int argc, char** argv) {
  CommandLine command;
  const Flag flags[] = {
      {"config", "FILE", "the run's ClusterConfig, protobuf text format", &command.config, true},
      {"shard", "I", "which shard of the config this process is, from 0; spares follow the shards",
       &command.shard, true},
      {"set", "FIELD=VALUE", "overrides a field of the config; repeatable", &command.overrides},
      {"coordinator", "ADDRESS", "the address of the run's coordinator: set by launch",
       &command.coordinator},
      {"resume", "",
       "starts from the newest complete checkpoint in recovery.checkpoint.folder. With "
       "recovery.etcd it counts only when the run begins, and each ps should have it; "
       "launch has a flag of its own",
       &command.resume},
  };
  if (const auto code = StartProgram("ps", kUsage, flags, argc, argv)) return *code;
  return Run(command);
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) { return evenshard::Main(argc, argv); }
