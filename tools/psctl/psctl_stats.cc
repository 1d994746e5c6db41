#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/atomic_file.h"
#include "common/base/clock.h"
#include "common/base/command_line.h"
#include "common/base/log.h"
#include "common/config/config.h"
#include "tools/psctl/psctl.h"
#include "tools/psctl/shard_calls.h"
#include "tools/psctl/stats_report.h"

namespace ps {
namespace {

constexpr char kUsage[] =
    "bazel-bin/tools/psctl/psctl stats --config=FILE [--set field=value ...] "
    "[--format=table|json]\n"
    "                            [--out=FILE] [--watch[=SECONDS]]\n\n"
    "Asks every shard for its statistics. Exit code 1 when a shard does not answer.\n\n"
    "in and out are seen from the shards: gradients in, parameters out. Times are sums over\n"
    "a shard's threads. Workers report every two seconds or so what they use: `resident` and\n"
    "`device memory` are a worker's own, `used by all` and `busy` the whole GPU's, from NVML;\n"
    "workers on one host with the same PCI bus id share a GPU. `-`: not reported.\n"
    "`iteration` is how many a worker has come to push, as its progress line counts them.\n"
    "JSON is protobuf's mapping of proto/admin.proto: 64-bit integers are strings. 1 MB is\n"
    "1,000,000 bytes.";

constexpr char kClearTerminal[] = "\033[H\033[2J";

ClusterReport Ask(const Config& config, absl::Duration timeout, const Clock& clock) {
  ClusterReport report;
  std::vector<absl::StatusOr<ShardStats>> results = GetStats(config, timeout);
  report.time = clock.Now();
  for (size_t shard = 0; shard < results.size(); ++shard) {
    report.shards.push_back({config.address(shard), std::move(results[shard])});
  }
  return report;
}

// Prints a report every `period` until SIGINT or SIGTERM; each text from the second on
// has rates, each JSON object is a line.
int Watch(const Config& config, absl::Duration timeout, absl::Duration period, bool json) {
  // Blocked, and so in the threads started from here on too: sigtimedwait() takes them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  sigprocmask(SIG_BLOCK, &signals, nullptr);

  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const timespec wait = absl::ToTimespec(period);
  const RealClock clock;  // the same for all reports: rates come from the time between two
  std::optional<ClusterReport> earlier;
  while (true) {
    ClusterReport report = Ask(config, timeout, clock);
    if (json) {
      std::cout << StatsJson(report, /*one_line=*/true) << std::flush;
    } else {
      std::cout << (terminal ? kClearTerminal : "")
                << absl::FormatTime(absl::RFC3339_sec, report.time, absl::LocalTimeZone()) << "\n"
                << StatsText(report, earlier ? &*earlier : nullptr) << "\n"
                << std::flush;
    }
    earlier = std::move(report);
    if (sigtimedwait(&signals, nullptr, &wait) > 0) {
      return earlier->complete() ? kPsctlOk : kPsctlFailure;
    }
  }
}

absl::Status Write(const std::string& path, const std::string& text) {
  absl::StatusOr<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(path, text.size());
  if (!file.ok()) return file.status();
  const absl::Status status = (*file)->WriteAt(0, text);
  return status.ok() ? (*file)->Commit() : status;
}

}  // namespace

int StatsVerb(int argc, const char* const* argv) {
  std::string path;
  std::vector<std::string> overrides;
  std::string format = "table";
  std::string out;
  std::optional<double> timeout = 5;
  std::optional<double> watch;
  std::string log_level;
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &path, true},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated", &overrides},
      {"format", "table|json", "of the output; default: table", &format},
      {"out", "FILE", "writes there instead of to standard output", &out},
      {"timeout", "SECONDS", "how long a shard may take to answer; default: 5", &timeout},
      {"watch", "SECONDS", "asks again and again, by default every 2 s, until Ctrl-C; adds rates",
       &watch, false, "2"},
      LogLevelFlag(&log_level),
  };
  if (const auto code = ParseCommandLine(kUsage, flags, argc, argv)) return *code;
  SetUpLog("psctl", log_level);
  if ((format != "table" && format != "json") || !(*timeout > 0) || (watch && !(*watch > 0)) ||
      (watch && !out.empty())) {
    std::cerr << "psctl stats: --format must be table or json, --timeout and --watch above 0, "
                 "--out without --watch\n";
    return kPsctlUsage;
  }
  const absl::StatusOr<Config> config = Config::Load(path, overrides);
  if (!config.ok()) {
    std::cerr << config.status().message() << "\n";
    return kPsctlUsage;
  }
  if (watch) {
    return Watch(*config, absl::Seconds(*timeout), absl::Seconds(*watch), format == "json");
  }
  const ClusterReport report = Ask(*config, absl::Seconds(*timeout), RealClock());
  const std::string text = format == "json" ? StatsJson(report) : StatsText(report);
  if (out.empty()) {
    std::cout << text;
  } else if (const absl::Status status = Write(out, text); !status.ok()) {
    std::cerr << status.message() << "\n";
    return kPsctlFailure;
  }
  return report.complete() ? kPsctlOk : kPsctlFailure;
}

}  // namespace ps
