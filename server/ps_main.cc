// ps: one parameter-server shard. Runs until SIGTERM, SIGINT or the Shutdown RPC.

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/command_line.h"
#include "common/base/log.h"
#include "common/base/process_setup.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/real_storage.h"
#include "common/checkpoint/run_checkpoints.h"
#include "common/config/config.h"
#include "common/etcd/make_view_link.h"
#include "server/server.h"
#include "server/summary.h"
#include "server/view_candidate.h"
#include "spdlog/spdlog.h"

namespace {

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int shard = -1;
  std::string authority;
  bool resume = false;
  std::string log_level;
};

// Returns what a run without views begins from.
absl::StatusOr<ps::View> FindStart(const ps::Config& config, bool resume) {
  ps::View start;
  start.set_run(config.fingerprint());
  start.set_generation(1);
  if (!config.proto().recovery().has_checkpoint()) {
    if (!resume) return start;
    return config.FieldError("recovery.checkpoint", "is missing, and --resume needs it");
  }
  ps::RealStorage storage;
  ASSIGN_OR_RETURN(const std::optional<ps::ViewKeeper::Checkpoint> found,
                   ps::RunCheckpoints::FindStart(config, resume, &storage));
  if (!found.has_value()) return start;
  start.set_generation(found->generation + 1);
  start.set_checkpoint(found->name);
  *start.mutable_crew() = found->crew;
  return start;
}

// Returns the exit code of a process that ends because of these: 2 if starting it again could not
// help.
int ExitCode(const absl::Status& views_ended, const absl::Status& candidate) {
  if (absl::IsFailedPrecondition(views_ended) || absl::IsInvalidArgument(candidate)) return 2;
  return views_ended.ok() && candidate.ok() ? 0 : 1;
}

// Returns an error if the config asks for what needs views.
absl::Status CheckWithoutViews(const ps::Config& config) {
  const ps::Recovery& recovery = config.proto().recovery();
  const char* const field = recovery.replicas() > 0                        ? "recovery.replicas"
                            : recovery.worker_loss() != ps::Recovery::FAIL ? "recovery.worker_loss"
                            : recovery.checkpoint().has_every_seconds() &&
                                    config.proto().update().policy() == ps::Update::SYNC
                                ? "recovery.checkpoint.every_seconds"
                                : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return config.FieldError(field,
                           "needs somebody who decides which process has which role, allowed: a "
                           "run by launch, or recovery.etcd");
}

int Run(const CommandLine& command) {
  // These signals are awaited below. They are blocked before any thread starts, so that none of the
  // threads receives one.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ps::SetUpProcess();

  absl::StatusOr<ps::Config> config = ps::Config::Load(command.config, command.overrides);
  if (!config.ok()) {
    spdlog::error("{}", std::string(config.status().message()));
    return 2;
  }
  ps::RealClock clock;
  std::unique_ptr<ps::ViewLink> link = ps::MakeViewLink(command.authority, config->proto(), &clock);
  absl::StatusOr<ps::View> start = ps::View();
  if (link == nullptr) {
    const absl::Status possible = CheckWithoutViews(*config);
    start = possible.ok() ? FindStart(*config, command.resume) : possible;
    if (!start.ok()) {
      spdlog::error("{}", std::string(start.status().message()));
      return 2;
    }
  }
  const auto request_shutdown = [] { kill(getpid(), SIGTERM); };
  absl::StatusOr<std::unique_ptr<ps::Server>> server = ps::Server::Start({
      .config = &*config,
      .shard = command.shard,
      .clock = &clock,
      .view_link = link.get(),
      .start = *start,
      .request_shutdown = request_shutdown,
      .release_memory = ps::ReleaseFreeMemory,
  });
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return absl::IsOutOfRange(server.status()) ? 2 : 1;  // OUT_OF_RANGE: no such shard
  }
  spdlog::info(
      "Evenshard ps {} is listening on {}: {}", command.shard, (*server)->address(),
      command.shard < config->shards() ? ps::Ownership(*config, command.shard) : "a spare process");
  if (config->proto().partition().scheme() == ps::Partition::AUTO) {
    spdlog::info("{}", ps::AutoChoice(*config));
  }
  std::unique_ptr<ps::ViewCandidate> candidate;  // null unless etcd has the views
  if (command.authority.empty() && config->proto().recovery().has_etcd()) {
    candidate = std::make_unique<ps::ViewCandidate>(
        ps::ViewCandidate::Options{.config = &*config,
                                   .process = command.shard,
                                   .resume = command.resume,
                                   .clock = &clock,
                                   .request_shutdown = request_shutdown});
  }

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: ending", strsignal(signal));
  std::vector<ps::ShardStats> all;
  for (int slot = 0; slot < config->shards(); ++slot) {
    if (absl::StatusOr<ps::ShardStats> stats = (*server)->host().Stats(slot); stats.ok()) {
      all.push_back(*std::move(stats));
    }
  }
  (*server)->Shutdown();
  // The link calls the server, and gives up this process's roles, so that nobody may be answered
  // any more.
  link.reset();
  const absl::Status candidate_failure =
      candidate == nullptr ? absl::OkStatus() : candidate->failure();
  candidate.reset();
  bool failed = false;
  for (const ps::ShardStats& stats : all) {
    spdlog::info("{}", ps::Summary(stats));
    if (stats.skipped_pushes() > 0) {
      spdlog::warn("{} pushes were skipped: gradients of workers were not finite",
                   ps::FormatCount(stats.skipped_pushes()));
    }
    failed |= !stats.failure().empty();
  }
  const int code = ExitCode((*server)->views_ended(), candidate_failure);
  return code == 0 && failed ? 1 : code;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine command;
  const std::vector<ps::Flag> flags = {
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
      {.name = "authority",
       .value = "ADDRESS",
       .help = "who makes the run's views: set by launch",
       .target = &command.authority},
      {.name = "resume",
       .value = "",
       .help = "starts from the newest complete checkpoint in recovery.checkpoint.folder. With "
               "recovery.etcd it counts only when the run begins, and each ps should have it; "
               "launch has a flag of its own",
       .target = &command.resume},
      ps::LogLevelFlag(&command.log_level),
  };
  const std::optional<int> exit_code = ps::ParseCommandLine(
      "Evenshard's ps: serves one shard of the parameters.\n\n"
      "bazel-bin/server/ps --config=FILE --shard=I [--resume]\n\n"
      "SIGTERM or SIGINT ends it within limits.shutdown_seconds. Exit code: 0 when the run went\n"
      "well, 1 after a failure, 2 for a wrong command line or config.",
      flags, argc, argv);
  if (exit_code.has_value()) return *exit_code;
  ps::SetUpLog("ps", command.log_level);
  return Run(command);
}
