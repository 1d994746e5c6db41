#include <iostream>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/config/config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/reader/process_calls.h"
#include "tools/psctl/report/view_report.h"
#include "tools/psctl/verbs/psctl.h"
#include "tools/psctl/verbs/run_flags.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl view [--config=FILE | --run=NAME] [--set field=value ...] [--format=table|json]\n\n"
    "Asks every ps process, spares included, for the view that it follows, and prints the newest:\n"
    "which process answers for each slot and which has its replica, which workers are there, and\n"
    "which of them count from which iteration on. Processes may be down; the exit code is 1 if\n"
    "none answers.\n\n"
    "JSON is protobuf's mapping of View in proto/view.proto, in which 64-bit integers are strings.";

}  // namespace

int ViewVerb(int argc, const char* const* argv) {
  RunFlags target;
  std::string format = "table";
  std::optional<double> timeout = 5;
  const Flag flags[] = {
      target.Config(),
      target.Run(),
      target.Set(),
      FormatFlag(&format),
      {"timeout", "SECONDS", "how long a process may take to answer; default: 5", &timeout},
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  if (const absl::Status found = target.Resolve(); !found.ok()) {
    return PrintError(found, kPsctlUsage);
  }
  const absl::StatusOr<Config> config = LoadWithShards(target);
  if (!config.ok()) return PrintError(config.status(), kPsctlUsage);
  const ViewReport report = GetViews(*config, absl::Seconds(*timeout));
  std::cout << (format == "json" ? ViewJson(report) : ViewText(report));
  return NewestView(report) == nullptr ? kPsctlFailure : kPsctlOk;
}

}  // namespace evenshard
