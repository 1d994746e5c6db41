#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/config/config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/reader/process_calls.h"
#include "tools/psctl/verbs/psctl.h"
#include "tools/psctl/verbs/run_flags.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl shutdown [--config=FILE | --run=NAME] [--set field=value ...]\n\n"
    "Ends every ps process, spares included, as SIGTERM does. The exit code is 1 if one does not\n"
    "answer. A run that launch started is ended by a signal to launch instead.";

}  // namespace

int ShutdownVerb(int argc, const char* const* argv) {
  RunFlags target;
  std::optional<double> timeout = 5;
  const Flag flags[] = {
      target.Config(),
      target.Run(),
      target.Set(),
      {"timeout", "SECONDS", "how long a shard may take to answer; default: 5", &timeout},
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  if (const absl::Status found = target.Resolve(); !found.ok()) {
    return PrintError(found, kPsctlUsage);
  }
  const absl::StatusOr<Config> config = LoadWithShards(target);
  if (!config.ok()) return PrintError(config.status(), kPsctlUsage);
  int code = kPsctlOk;
  const std::vector<std::string> addresses = ProcessAddresses(*config);
  const std::vector<absl::Status> results = ShutDownProcesses(*config, absl::Seconds(*timeout));
  for (size_t process = 0; process < results.size(); ++process) {
    const bool spare = process >= static_cast<size_t>(config->shards());
    std::cout << (spare ? "spare " : "shard ") << process << " (" << addresses[process] << "): ";
    if (results[process].ok()) {
      std::cout << "is shutting down\n";
    } else {
      std::cout << "unreachable: " << results[process].message() << "\n";
      code = kPsctlFailure;
    }
  }
  return code;
}

}  // namespace evenshard
