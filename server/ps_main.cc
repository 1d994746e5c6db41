// ps: one parameter-server shard. Runs until SIGTERM, SIGINT or the Shutdown RPC.

#include <unistd.h>

#include <csignal>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/command_line.h"
#include "common/base/log.h"
#include "common/base/process_setup.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "server/server.h"
#include "server/summary.h"
#include "spdlog/spdlog.h"

namespace {

int Run(const std::string& config_path, const std::vector<std::string>& overrides, int shard) {
  // These signals are awaited below. They are blocked before any thread starts, so that none of the
  // threads receives one.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ps::SetUpProcess();

  absl::StatusOr<ps::Config> config = ps::Config::Load(config_path, overrides);
  if (!config.ok()) {
    spdlog::error("{}", std::string(config.status().message()));
    return 2;
  }
  ps::RealClock clock;
  absl::StatusOr<std::unique_ptr<ps::Server>> server = ps::Server::Start({
      .config = &*config,
      .shard = shard,
      .clock = &clock,
      .request_shutdown = [] { kill(getpid(), SIGTERM); },
      .release_memory = ps::ReleaseFreeMemory,
  });
  if (!server.ok()) {
    spdlog::error("{}", std::string(server.status().message()));
    return absl::IsOutOfRange(server.status()) ? 2 : 1;  // OUT_OF_RANGE: no such shard
  }
  spdlog::info("Evenshard ps {} is listening on {}: {}", shard, (*server)->address(),
               ps::Ownership(*config, shard));
  if (config->proto().partition().scheme() == ps::Partition::AUTO) {
    spdlog::info("{}", ps::AutoChoice(*config));
  }

  int signal = 0;
  sigwait(&signals, &signal);
  spdlog::info("{}: ending", strsignal(signal));
  const ps::ShardStats stats = (*server)->shard().Stats();
  (*server)->Shutdown();
  spdlog::info("{}", ps::Summary(stats));
  if (stats.skipped_pushes() > 0) {
    spdlog::warn("{} pushes were skipped: gradients of workers were not finite",
                 ps::FormatCount(stats.skipped_pushes()));
  }
  return stats.failure().empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string config;
  std::vector<std::string> overrides;
  int shard = -1;
  std::string log_level;
  const std::vector<ps::Flag> flags = {
      {.name = "config",
       .value = "FILE",
       .help = "the run's ClusterConfig, protobuf text format",
       .target = &config,
       .required = true},
      {.name = "shard",
       .value = "I",
       .help = "which shard of the config this process is, from 0",
       .target = &shard,
       .required = true},
      {.name = "set",
       .value = "FIELD=VALUE",
       .help = "overrides a field of the config; repeatable",
       .target = &overrides},
      ps::LogLevelFlag(&log_level),
  };
  const std::optional<int> exit_code = ps::ParseCommandLine(
      "Evenshard's ps: serves one shard of the parameters.\n\n"
      "bazel-bin/server/ps --config=FILE --shard=I\n\n"
      "SIGTERM or SIGINT ends it within limits.shutdown_seconds. Exit code: 0 when the run went\n"
      "well, 1 after a failure, 2 for a wrong command line or config.",
      flags, argc, argv);
  if (exit_code.has_value()) return *exit_code;
  ps::SetUpLog("ps", log_level);
  return Run(config, overrides, shard);
}
