// The program "worker" trains one replica of the model on its share of the data. On SIGTERM or
// SIGINT it leaves the cluster and ends.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/base/clock.h"
#include "common/base/text.h"
#include "common/checkpoint/write_model.h"
#include "common/control/etcd/make_view_link.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/process/process_setup.h"
#include "common/security/tls_files.h"
#include "spdlog/spdlog.h"
#include "worker/trace/trace.h"
#include "worker/training/connect_exchange.h"
#include "worker/training/trainer.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "Evenshard's worker: trains one replica of the model.\n\n"
    "worker --config=FILE --rank=I\n\n"
    "SIGTERM or SIGINT ends it within limits.shutdown_seconds. Exit code: 0 if the run\n"
    "succeeded, 1 if it failed, 2 if the command line or the config is wrong.";

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  int rank = -1;
  std::string coordinator;
  std::string summary;
  std::string trace;
  std::string save;
};

// Calls Trainer::Stop on SIGTERM or SIGINT, and ends the process if the trainer takes too long.
// Must be created before any other thread, so that every thread inherits the blocked signals.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGTERM);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGUSR1);  // sent by the destructor
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { Watch(); });
  }

  ~SignalWatch() {
    ending_ = true;
    pthread_kill(thread_.native_handle(), SIGUSR1);
    thread_.join();
  }

  // From now on a signal stops `trainer`. If it is null, a signal ends the process at once, since
  // there is no rank to give up.
  void Guard(Trainer* trainer, absl::Duration limit) {
    absl::MutexLock lock(&mutex_);
    trainer_ = trainer;
    limit_ = limit;
  }

 private:
  // Waits for a signal until `deadline`. Returns 0 if none came or the program ends.
  int Await(absl::Time deadline) {
    while (!ending_) {
      const absl::Duration left = deadline - clock_.Now();
      if (left <= absl::ZeroDuration()) break;
      const timespec timeout = absl::ToTimespec(std::min(left, absl::Hours(1)));
      const int signal = sigtimedwait(&signals_, nullptr, &timeout);
      if (signal > 0 && signal != SIGUSR1) return signal;
    }
    return 0;
  }

  void Watch() {
    const int signal = Await(absl::InfiniteFuture());
    if (signal == 0) return;
    const std::string name = strsignal(signal);
    const absl::Time start = clock_.Now();
    absl::Duration limit;
    {
      absl::MutexLock lock(&mutex_);
      if (trainer_ == nullptr) {
        spdlog::error("stopped by {}", name);
        _exit(1);
      }
      trainer_->Stop(absl::CancelledError(absl::StrCat("stopped by ", name)));
      limit = limit_;
    }
    // A second signal ends the wait, unless it comes together with the first: a shell and a
    // supervisor may both pass the same signal on.
    constexpr absl::Duration kTelling = absl::Seconds(1);
    constexpr absl::Duration kTogether = absl::Seconds(1);
    while (Await(start + limit - kTelling) != 0 && clock_.Now() - start < kTogether) {
    }
    if (ending_) return;
    absl::MutexLock lock(&mutex_);
    if (trainer_ != nullptr) trainer_->Abandon(kTelling);
    spdlog::error("stopped by {}, in the middle of an iteration", name);
    _exit(1);
  }

  const RealClock clock_;
  sigset_t signals_;
  std::atomic<bool> ending_{false};
  absl::Mutex mutex_;
  Trainer* trainer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Duration limit_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

int Run(const CommandLine& command) {
  SignalWatch signals;
  SetUpProcess();
  // Check this now rather than after hours of training.
  if (!command.save.empty()) {
    if (const absl::Status writable = CheckWritable(command.save); !writable.ok()) {
      return LogError(writable, 2);
    }
  }
  if (!command.summary.empty() && !std::ofstream(command.summary, std::ios::app)) {
    spdlog::error("cannot write --summary={}: {}", command.summary, std::strerror(errno));
    return 2;
  }
  std::vector<std::string> overrides = command.overrides;
  overrides.push_back(NameOverride({.role = Role::kWorker, .index = command.rank}));
  absl::StatusOr<PlannedConfig> config = PlannedConfig::Load(command.config, overrides);
  absl::Status usable = config.ok() ? config->CheckOwnModel() : config.status();
  if (usable.ok()) usable = CheckAndLogSecurity(config->proto());
  if (!usable.ok()) return LogError(usable, 2);
  if (!command.save.empty() && !config->is_ring()) {
    spdlog::error("--save: is for topology RING, allowed with shards: psctl save");
    return 2;
  }
  const std::string partners = config->is_ring()
                                   ? absl::StrCat("in a ring of ", config->workers(), " workers")
                                   : absl::StrCat("on ", config->shards(), " shards, with ",
                                                  config->workers(), " workers in all");
  spdlog::info("Evenshard worker {}: trains {} {}", command.rank, config->model().name(), partners);
  RealClock clock;
  std::unique_ptr<Trace> trace;
  if (!command.trace.empty()) {
    absl::StatusOr<std::unique_ptr<Trace>> created =
        Trace::Create(command.trace, command.rank, &config->model(), &clock);
    if (!created.ok()) {
      spdlog::error("--trace: {}", std::string(created.status().message()));
      return 2;
    }
    trace = *std::move(created);
  }
  const std::unique_ptr<ViewLink> views =
      MakeViewLink(command.coordinator, config->proto(), &clock);
  absl::StatusOr<std::unique_ptr<Trainer>> trainer = Trainer::Create({
      .config = &*config,
      .rank = command.rank,
      .clock = &clock,
      .progress = ProgressReporter::ForOutput(stdout),
      .trace = trace.get(),
      .connect =
          [&views](Exchange::Options options) {
            options.view_link = views.get();
            return ConnectExchange(options);
          },
  });
  if (!trainer.ok()) {
    spdlog::error("{}", std::string(trainer.status().message()));
    // These errors say that the rank or the config is wrong.
    const bool is_usage =
        absl::IsOutOfRange(trainer.status()) || absl::IsInvalidArgument(trainer.status());
    return is_usage ? 2 : 1;
  }
  const absl::Duration limit = absl::Seconds(config->proto().limits().shutdown_seconds());
  signals.Guard(trainer->get(), limit);
  absl::StatusOr<TrainingSummary> summary = (*trainer)->Run();
  signals.Guard(nullptr, limit);
  const absl::Status traced = trace == nullptr ? absl::OkStatus() : trace->Close();
  if (!traced.ok()) spdlog::error("--trace: {}", std::string(traced.message()));
  if (!summary.ok()) return LogError(summary.status(), 1);
  spdlog::info(
      "done: {} iterations ({} skipped) of {} (median), {:.1f} images/s; {} computing, {} waiting "
      "on exchange; pushed {}, received {}",
      FormatCount(summary->iterations), summary->skipped_iterations,
      FormatSeconds(summary->median_iteration_seconds), summary->images_per_second,
      FormatSeconds(summary->compute_seconds), FormatSeconds(summary->exchange_wait_seconds),
      FormatBytes(summary->traffic.bytes_out), FormatBytes(summary->traffic.bytes_in));
  if (summary->skipped_iterations > 0) {
    spdlog::warn("{} of {} gradients were not finite and were left out (update.non_finite: SKIP)",
                 summary->skipped_iterations, FormatCount(summary->iterations));
  }
  if (!std::isfinite(summary->final_loss)) {
    spdlog::warn("the loss of the last batch is {}", summary->final_loss);
  }
  // With recovery every worker is told to, in case that it is the first of those that are left.
  if (!command.save.empty() && (views == nullptr || (*trainer)->is_first())) {
    const absl::Status saved = WriteModel(config->model(), (*trainer)->parameters(), command.save);
    if (!saved.ok()) return LogError(saved, 1);
    spdlog::info("the model is in {}", command.save);
  }
  if (!command.summary.empty()) {
    std::ofstream file(command.summary);
    file << summary->ToJson();
    if (!file.flush()) {
      spdlog::error("cannot write --summary={}: {}", command.summary, std::strerror(errno));
      return 1;
    }
  }
  return traced.ok() ? 0 : 1;
}

int Main(int argc, char** argv) {
  CommandLine command;
  const Flag flags[] = {
      {"config", "FILE", "the run's ClusterConfig in protobuf text format", &command.config, true},
      {"rank", "I", "the worker's rank, from 0", &command.rank, true},
      {"coordinator", "ADDRESS", "the address of the run's coordinator: set by launch",
       &command.coordinator},
      {"set", "FIELD=VALUE", "overrides a field of the config; repeatable", &command.overrides},
      {"summary", "FILE", "writes the figures of the run to FILE, as JSON", &command.summary},
      {"save", "FILE", "with topology RING, writes the trained model to FILE", &command.save},
      {"trace", "FILE", "writes a timeline of the worker to FILE, for Perfetto or about:tracing",
       &command.trace},
  };
  if (const auto code = StartProgram("worker", kUsage, flags, argc, argv)) return *code;
  return Run(command);
}

}  // namespace
}  // namespace evenshard

int main(int argc, char** argv) { return evenshard::Main(argc, argv); }
