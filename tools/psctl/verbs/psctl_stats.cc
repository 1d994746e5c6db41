#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/config/config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/reader/process_calls.h"
#include "tools/psctl/report/stats_report.h"
#include "tools/psctl/verbs/psctl.h"
#include "tools/psctl/verbs/run_flags.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl stats [--config=FILE | --run=NAME] [--set field=value ...] [--format=table|json]\n"
    "            [--out=FILE | --watch[=SECONDS]]\n\n"
    "Asks every shard for its statistics. The exit code is 1 if a shard does not answer. With\n"
    "`recovery` in the config, the process that holds the shard by the newest view is asked.\n"
    "Of a ring, which has no shards, every worker is asked.\n\n"
    "`in` and `out` are seen from the shards: gradients in, parameters out. Times are sums over a\n"
    "shard's threads. `repeated` and `skipped` pushes are not among `pushes`; a worker's appear\n"
    "once there are any. `iteration` counts the iterations that a worker has pushed, as its\n"
    "progress line does. If an update waits for workers, a line names its iteration, which is\n"
    "numbered from 0 as in the logs, and the workers that have not pushed yet.\n\n"
    "Workers report their usage about every two seconds. `resident` and `device memory` are a\n"
    "worker's own; `used by all` and `busy` are the whole GPU's, from NVML. Workers on one host\n"
    "with the same PCI bus id share a GPU. `-` means not reported.\n\n"
    "With `recovery`, `unconfirmed` are the updates that a shard's replica has not confirmed, and\n"
    "`to fill` the chunks that a new replica does not have yet. `checkpoint` is the iteration of\n"
    "the newest one that is complete on disk; under ASYNC checkpoints are numbered instead. `held\n"
    "up` is the time for which updates waited for the writer.\n\n"
    "In a ring `sent` and `received` are a worker's sums and parameters, and `waited` is the time\n"
    "for which it has waited for others, all since it began to form the ring.\n\n"
    "JSON is protobuf's mapping of proto/admin.proto and proto/ring.proto, in which 64-bit\n"
    "integers are strings. 1 MB is 1,000,000 bytes.";

constexpr char kClearTerminal[] = "\033[H\033[2J";

// `stop` ends what is asked early.
ClusterReport Ask(const Config& config, absl::Duration timeout, const Clock& clock,
                  const std::stop_token& stop = {}) {
  ClusterReport report;
  if (config.is_ring()) {
    std::vector<absl::StatusOr<RingStats>> results = GetRingStats(config, timeout, stop);
    report.time = clock.Now();
    for (int rank = 0; rank < config.workers(); ++rank) {
      report.workers.push_back({config.proto().ring().address(rank), std::move(results[rank])});
    }
    return report;
  }
  const std::vector<absl::StatusOr<std::string>> primaries =
      PrimaryAddresses(config, timeout, stop);
  std::vector<absl::StatusOr<ShardStats>> results = GetStats(config, primaries, timeout, stop);
  report.time = clock.Now();
  for (size_t shard = 0; shard < results.size(); ++shard) {
    report.shards.push_back({primaries[shard].value_or(""), std::move(results[shard])});
  }
  return report;
}

// Requests a stop at SIGINT or SIGTERM. Threads that are started before it would get the signals
// instead.
class SignalStop {
 public:
  SignalStop() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
    waiting_ = std::jthread([this](const std::stop_token& ended) {
      constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 50'000'000};
      while (!ended.stop_requested() && sigtimedwait(&signals_, nullptr, &kPause) <= 0) {
      }
      source_.request_stop();
    });
  }

  std::stop_token token() const { return source_.get_token(); }

 private:
  sigset_t signals_;
  std::stop_source source_;
  std::jthread waiting_;
};

// Prints a report every `period` until SIGINT or SIGTERM. Tables have rates from the second report
// on; JSON is one line for each report.
int Watch(const Config& config, absl::Duration timeout, absl::Duration period, bool json) {
  const SignalStop signals;
  const std::stop_token stop = signals.token();
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const RealClock clock;  // one clock for all reports, since rates need the time between two
  std::optional<ClusterReport> earlier;
  while (true) {
    ClusterReport report = Ask(config, timeout, clock, stop);
    // What it was not given the time to ask is not unreachable.
    if (stop.stop_requested()) break;
    if (json) {
      std::cout << StatsJson(report, /*one_line=*/true) << std::flush;
    } else {
      std::cout << (terminal ? kClearTerminal : "")
                << absl::FormatTime(absl::RFC3339_sec, report.time, absl::LocalTimeZone()) << "\n"
                << StatsText(report, earlier ? &*earlier : nullptr) << "\n"
                << std::flush;
    }
    if (!std::cout) return kPsctlFailure;
    earlier = std::move(report);
    if (!clock.SleepUntil(clock.Now() + period, stop)) break;
  }
  return earlier && earlier->complete() ? kPsctlOk : kPsctlFailure;
}

absl::Status Write(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path, text.size()));
  RETURN_IF_ERROR(file->WriteAt(0, text));
  return file->Commit();
}

}  // namespace

int StatsVerb(int argc, const char* const* argv) {
  RunFlags target;
  std::string format = "table";
  std::string out;
  std::optional<double> timeout = 5;
  std::optional<double> watch;
  const Flag flags[] = {
      target.Config(),
      target.Run(),
      target.Set(),
      FormatFlag(&format),
      {"out", "FILE", "writes to this file instead of to standard output", &out},
      {"timeout", "SECONDS", "how long a process may take to answer; default: 5", &timeout},
      {"watch", "SECONDS", "repeats until Ctrl-C, by default every 2 s, and adds rates", &watch,
       false, "2"},
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  if (watch && !out.empty()) {
    std::cerr << "psctl stats: --out: is given with --watch, allowed: one of the two\n";
    return kPsctlUsage;
  }
  if (const absl::Status found = target.Resolve(); !found.ok()) {
    return PrintError(found, kPsctlUsage);
  }
  const absl::StatusOr<Config> config = LoadRun(target);
  if (!config.ok()) return PrintError(config.status(), kPsctlUsage);
  if (watch) {
    return Watch(*config, absl::Seconds(*timeout), absl::Seconds(*watch), format == "json");
  }
  const ClusterReport report = Ask(*config, absl::Seconds(*timeout), RealClock());
  const std::string text = format == "json" ? StatsJson(report) : StatsText(report);
  if (out.empty()) {
    std::cout << text;
  } else if (const absl::Status status = Write(out, text); !status.ok()) {
    return PrintError(status, kPsctlFailure);
  }
  return report.complete() ? kPsctlOk : kPsctlFailure;
}

}  // namespace evenshard
