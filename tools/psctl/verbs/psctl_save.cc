#include <iostream>
#include <string>

#include "common/base/text.h"
#include "common/placement/planned_config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "common/reader/process_calls.h"
#include "common/security/tls_files.h"
#include "tools/psctl/report/save_model.h"
#include "tools/psctl/verbs/psctl.h"
#include "tools/psctl/verbs/run_flags.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl save [--config=FILE | --run=NAME] --out=FILE [--set field=value ...]\n\n"
    "Writes the parameters of all running shards at one iteration to one file in the safetensors\n"
    "layout, while the run goes on. The file appears whole or not at all. If the run has failed,\n"
    "or has lost its workers in the middle of an iteration, it is written as it is, with a\n"
    "warning.";

}  // namespace

int SaveVerb(int argc, const char* const* argv) {
  RunFlags target;
  std::string out;
  const Flag flags[] = {
      target.Config(),
      target.Run(),
      {"out", "FILE", "the file to write, usually *.safetensors", &out, true},
      target.Set(),
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  if (const absl::Status found = target.Resolve(); !found.ok()) {
    return PrintError(found, kPsctlUsage);
  }
  const absl::StatusOr<PlannedConfig> config = LoadWithModel(target.config, target.overrides);
  // No worker has joined yet, or no shard answers.
  if (absl::IsUnavailable(config.status())) return PrintError(config.status(), kPsctlFailure);
  absl::Status usable = config.ok() ? config->CheckHasShards() : config.status();
  if (usable.ok()) usable = CheckSecurity(config->proto());
  if (!usable.ok()) return PrintError(usable, kPsctlUsage);
  const absl::StatusOr<SavedModel> saved = SaveModel(*config, out);
  if (!saved.ok()) {
    std::cerr << "the model was not saved: " << saved.status().message() << "\n";
    return kPsctlFailure;
  }
  if (!saved->iteration.has_value()) {
    std::cerr << "the saved chunks may be of different iterations: " << saved->why_not << "\n";
  }
  const bool is_sync = config->is_synchronous();
  std::cout << "saved " << config->model().name() << ", "
            << FormatCount(config->model().parameter_count()) << " parameters"
            << (saved->iteration.has_value() ? " after " + FormatCount(*saved->iteration) +
                                                   (is_sync ? " iterations" : " updates")
                                             : "")
            << ", to " << out << "\n";
  return kPsctlOk;
}

}  // namespace evenshard
