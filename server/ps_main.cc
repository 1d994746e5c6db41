// ps: one parameter-server shard. Runs until SIGTERM, SIGINT or the Shutdown RPC.

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/real_storage.h"
#include "common/checkpoint/storage.h"
#include "common/control/etcd/make_view_link.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/relayed_link.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "server/rpc/declaration_wait.h"
#include "server/server.h"
#include "server/summary.h"
#include "server/view_candidate.h"
#include "spdlog/spdlog.h"

namespace {

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int shard = -1;
  std::string coordinator;
  bool resume = false;
  std::string log_level;
};

// Returns what a run without views begins from. The process of shard 0 holds the run's folder of
// checkpoints from now on.
absl::StatusOr<evenshard::View> FindStart(const evenshard::PlannedConfig& config, int shard,
                                          bool resume, evenshard::Storage* storage,
                                          std::unique_ptr<evenshard::RunCheckpoints>* checkpoints) {
  evenshard::View start;
  start.set_run(config.run_fingerprint());
  start.set_generation(1);
  if (!config.proto().recovery().has_checkpoint()) {
    if (!resume) return start;
    return config.FieldError("recovery.checkpoint", "is missing, and --resume needs it");
  }
  std::optional<evenshard::ViewCoordinator::Checkpoint> found;
  if (shard == 0) {
    using Start = evenshard::RunCheckpoints::Start;
    ASSIGN_OR_RETURN(*checkpoints, evenshard::RunCheckpoints::Open(
                                       config, config.run_fingerprint(),
                                       resume ? Start::kResumed : Start::kNew, "ps 0", storage));
    found = (*checkpoints)->resume();
  } else {
    ASSIGN_OR_RETURN(found, evenshard::RunCheckpoints::FindStart(config, resume, storage));
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
absl::Status CheckWithoutViews(const evenshard::PlannedConfig& config) {
  const evenshard::Recovery& recovery = config.proto().recovery();
  const char* const field = recovery.replicas() > 0 ? "recovery.replicas"
                            : recovery.worker_loss() != evenshard::Recovery::FAIL
                                ? "recovery.worker_loss"
                            : recovery.checkpoint().has_every_seconds() &&
                                    config.proto().update().policy() == evenshard::Update::SYNC
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
  std::unique_ptr<evenshard::RelayedLink> link;  // null without views
  uint64_t incarnation = 0;
};

// Waits until workers have declared the model. Returns nothing if one of `signals` came first.
// Errors: those of DeclarationWait; why the views have ended.
absl::StatusOr<std::optional<evenshard::PlannedConfig>> AwaitDeclaration(
    const evenshard::PlannedConfig& config, int process, evenshard::ViewLink* views,
    const sigset_t& signals, EarlyLink* early) {
  ASSIGN_OR_RETURN(const std::unique_ptr<evenshard::DeclarationWait> wait,
                   evenshard::DeclarationWait::Start({.config = &config,
                                                      .process = process,
                                                      .has_views = views != nullptr,
                                                      .request_shutdown = RequestShutdown}));
  if (views != nullptr) {
    early->link = std::make_unique<evenshard::RelayedLink>(
        views, evenshard::ViewLink::Listener{
                   .on_view = [&wait](const evenshard::View& view) { wait->Adopt(view); },
                   .on_end = [&wait](const absl::Status& reason) { wait->Fail(reason); }});
    early->incarnation = evenshard::NewIncarnation();
    evenshard::ProcessState state;
    state.set_ps(process);
    state.set_incarnation(early->incarnation);
    state.set_address(config.process_address(process));
    state.set_config_fingerprint(config.run_fingerprint());
    early->link->Announce(state);
  }
  spdlog::info("Evenshard ps {} on {} waits for a worker to declare the model", process,
               config.process_address(process));
  std::optional<absl::StatusOr<evenshard::PlannedConfig>> declared;
  bool is_signalled = false;
  while (!declared.has_value() && !is_signalled) {
    const timespec pause = absl::ToTimespec(absl::Milliseconds(10));
    is_signalled = sigtimedwait(&signals, nullptr, &pause) > 0;
    declared = wait->declared();
  }
  // The Server will hear the latest view.
  if (early->link != nullptr) {
    early->link->Start(
        {.on_view = [](const evenshard::View&) {}, .on_end = [](const absl::Status&) {}});
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
  evenshard::SetUpProcess();

  absl::StatusOr<evenshard::PlannedConfig> config =
      evenshard::PlannedConfig::Load(command.config, command.overrides);
  if (!config.ok()) {
    spdlog::error("{}", std::string(config.status().message()));
    return 2;
  }
  if (command.shard < 0 || command.shard >= config->processes()) {
    spdlog::error("there is no shard {}: the config has {} shards, 0 to {}", command.shard,
                  config->processes(), config->processes() - 1);
    return 2;
  }
  // Objects that are made later use those before them.
  const absl::StatusOr<evenshard::PlannedConfig> undeclared = config;
  evenshard::RealClock clock;
  EarlyLink early;
  std::unique_ptr<evenshard::ViewLink> link =
      evenshard::MakeViewLink(command.coordinator, config->proto(), &clock);
  std::unique_ptr<evenshard::ViewCandidate> candidate;  // null unless etcd has the views
  const auto become_candidate = [&](const evenshard::PlannedConfig& config) {
    if (!command.coordinator.empty() || !config.proto().recovery().has_etcd()) return;
    candidate = std::make_unique<evenshard::ViewCandidate>(
        evenshard::ViewCandidate::Options{.config = &config,
                                          .process = command.shard,
                                          .resume = command.resume,
                                          .clock = &clock,
                                          .request_shutdown = RequestShutdown});
  };
  if (!config->has_model()) {
    become_candidate(*undeclared);
    absl::StatusOr<std::optional<evenshard::PlannedConfig>> declared =
        AwaitDeclaration(*undeclared, command.shard, link.get(), signals, &early);
    if (!declared.ok()) {
      spdlog::error("{}", std::string(declared.status().message()));
      return absl::IsFailedPrecondition(declared.status()) ||
                     absl::IsInvalidArgument(declared.status())
                 ? 2
                 : 1;
    }
    if (!declared->has_value()) {
      spdlog::info("ending before a worker has declared the model");
      return 0;
    }
    config = **std::move(declared);
  }
  absl::StatusOr<evenshard::View> start = evenshard::View();
  evenshard::RealStorage storage;
  std::unique_ptr<evenshard::RunCheckpoints> checkpoints;
  if (link == nullptr) {
    const absl::Status possible = CheckWithoutViews(*config);
    start = possible.ok()
                ? FindStart(*config, command.shard, command.resume, &storage, &checkpoints)
                : possible;
    if (!start.ok()) {
      spdlog::error("{}", std::string(start.status().message()));
      return absl::IsInvalidArgument(start.status()) ? 2 : 1;
    }
  }
  absl::StatusOr<std::unique_ptr<evenshard::Server>> server = evenshard::Server::Start({
      .config = &*config,
      .shard = command.shard,
      .incarnation = early.incarnation,
      .clock = &clock,
      .view_link = early.link != nullptr ? early.link.get() : link.get(),
      .start = *start,
      .request_shutdown = RequestShutdown,
      .release_memory = evenshard::ReleaseFreeMemory,
  });
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return 1;
  }
  spdlog::info("Evenshard ps {} is listening on {}: {}", command.shard, (*server)->address(),
               command.shard < config->shards() ? evenshard::Ownership(*config, command.shard)
                                                : "a spare process");
  if (config->proto().partition().scheme() == evenshard::Partition::AUTO) {
    spdlog::info("{}", evenshard::AutoChoice(*config));
  }
  if (candidate == nullptr) become_candidate(*config);

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: ending", strsignal(signal));
  std::vector<evenshard::ShardStats> all;
  for (int slot = 0; slot < config->shards(); ++slot) {
    if (absl::StatusOr<evenshard::ShardStats> stats = (*server)->host().Stats(slot); stats.ok()) {
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
  for (const evenshard::ShardStats& stats : all) {
    spdlog::info("{}", evenshard::Summary(stats));
    // Programs of the workers' own may have other reasons.
    if (stats.skipped_pushes() > 0 && !config->is_from_workers()) {
      spdlog::warn("{} pushes were skipped: gradients of workers were not finite",
                   evenshard::FormatCount(stats.skipped_pushes()));
    }
    failed |= !stats.failure().empty();
  }
  const int code = ExitCode((*server)->views_ended(), candidate_failure);
  return code == 0 && failed ? 1 : code;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine command;
  const std::vector<evenshard::Flag> flags = {
      {.name = "config",
       .value = "FILE",
       .help = "the run's ClusterConfig, protobuf text format",
       .target = &command.config,
       .required = true},
      {.name = "shard",
       .value = "I",
       .help = "which shard of the config this process is, from 0; spares follow the shards",
       .target = &command.shard,
       .required = true},
      {.name = "set",
       .value = "FIELD=VALUE",
       .help = "overrides a field of the config; repeatable",
       .target = &command.overrides},
      {.name = "coordinator",
       .value = "ADDRESS",
       .help = "the address of the run's coordinator: set by launch",
       .target = &command.coordinator},
      {.name = "resume",
       .value = "",
       .help = "starts from the newest complete checkpoint in recovery.checkpoint.folder. With "
               "recovery.etcd it counts only when the run begins, and each ps should have it; "
               "launch has a flag of its own",
       .target = &command.resume},
      evenshard::LogLevelFlag(&command.log_level),
  };
  const std::optional<int> exit_code = evenshard::ParseCommandLine(
      "Evenshard's ps: serves one shard of the parameters.\n\n"
      "ps --config=FILE --shard=I [--resume]\n\n"
      "SIGTERM or SIGINT ends it within limits.shutdown_seconds. Exit code: 0 when the run went\n"
      "well, 1 after a failure, 2 for a wrong command line or config.",
      flags, argc, argv);
  if (exit_code.has_value()) return *exit_code;
  evenshard::SetUpLog("ps", command.log_level);
  return Run(command);
}
