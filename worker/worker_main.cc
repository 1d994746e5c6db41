// worker: one replica of the model, training on its share of the data. SIGTERM and SIGINT
// make it leave the cluster and end.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/command_line.h"
#include "common/config.h"
#include "common/grpc_logging.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "worker/trainer.h"

namespace {

constexpr char kUsage[] =
    "worker --config=FILE --rank=I: trains one replica of the model.\n"
    "SIGTERM or SIGINT ends it within limits.shutdown_seconds. Exit code: 0 when the run went\n"
    "well, 1 after a failure, 2 for a wrong command line or config.";

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int rank = -1;
  std::string summary;
};

// Turns SIGTERM and SIGINT into Trainer::Stop. Must be made before any other thread, so
// that all of them leave the signals to this one.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGUSR1);  // from the destructor: stop watching
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  }

  void Start(ps::Trainer* trainer, absl::Duration limit) {
    thread_ = std::thread([this, trainer, limit] {
      int signal = 0;
      sigwait(&signals_, &signal);
      if (signal == SIGUSR1) return;
      trainer->Stop(absl::CancelledError(absl::StrCat("stopped by ", strsignal(signal))));
      const timespec timeout = absl::ToTimespec(limit);
      if (sigtimedwait(&signals_, nullptr, &timeout) != SIGUSR1) {
        spdlog::error("ended the hard way: still busy after {} or another signal",
                      absl::FormatDuration(limit));
        _exit(1);
      }
    });
  }

  ~SignalWatch() {
    if (!thread_.joinable()) return;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

 private:
  sigset_t signals_;
  std::thread thread_;
};

int Run(const CommandLine& command) {
  SignalWatch signals;
  absl::StatusOr<ps::Config> config = ps::Config::Load(command.config, command.overrides);
  if (!config.ok()) {
    spdlog::error("{}", std::string(config.status().message()));
    return 2;
  }
  ps::RealClock clock;
  absl::StatusOr<std::unique_ptr<ps::Trainer>> trainer = ps::Trainer::Create({
      .config = &*config,
      .rank = command.rank,
      .clock = &clock,
      .progress = ps::ProgressReporter::ForOutput(stdout),
  });
  if (!trainer.ok()) {
    spdlog::error("{}", std::string(trainer.status().message()));
    return 1;
  }
  signals.Start(trainer->get(), absl::Seconds(config->proto().limits().shutdown_seconds()));
  absl::StatusOr<ps::TrainingSummary> summary = (*trainer)->Run();
  if (!summary.ok()) {
    spdlog::error("{}", std::string(summary.status().message()));
    return 1;
  }
  spdlog::info(
      "done: {} iterations ({} skipped) of {:.4g} s (median), {:.1f} images/s; {:.1f} s computing, "
      "{:.1f} s waiting on exchange; pushed {:.1f} MB, received {:.1f} MB",
      summary->iterations, summary->skipped_iterations, summary->median_iteration_seconds,
      summary->images_per_second, summary->compute_seconds, summary->exchange_wait_seconds,
      summary->traffic.bytes_out * 1e-6, summary->traffic.bytes_in * 1e-6);
  if (command.summary.empty()) return 0;
  std::ofstream file(command.summary);
  file << summary->ToJson();
  if (!file.flush()) {
    spdlog::error("cannot write --summary={}: {}", command.summary, std::strerror(errno));
    return 1;
  }
  return 0;
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
      {.name = "rank",
       .value = "I",
       .help = "which worker this process is, from 0",
       .target = &command.rank,
       .required = true},
      {.name = "set",
       .value = "FIELD=VALUE",
       .help = "overrides a field of the config; repeatable",
       .target = &command.overrides},
      {.name = "summary",
       .value = "FILE",
       .help = "writes the figures of the run there, as JSON",
       .target = &command.summary},
  };
  const std::optional<int> exit_code = ps::ParseCommandLine(kUsage, flags, argc, argv);
  if (exit_code.has_value()) return *exit_code;
  spdlog::set_default_logger(spdlog::stderr_color_mt("worker"));
  ps::RouteGrpcLogs();
  spdlog::set_pattern("%H:%M:%S.%e %^%l%$ %v");
  return Run(command);
}
