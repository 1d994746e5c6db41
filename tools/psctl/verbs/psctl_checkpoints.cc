#include <iostream>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/config/config.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "tools/psctl/report/checkpoints_report.h"
#include "tools/psctl/verbs/psctl.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl checkpoints --config=FILE [--set field=value ...] [--verify] [--format=table|json]\n"
    "psctl checkpoints --folder=DIR [--verify] [--format=table|json]\n\n"
    "Lists the checkpoints in a folder, the newest first, also while the run goes on. A "
    "checkpoint\n"
    "is incomplete until its manifest is there, and a run never begins from such a one. Sizes are\n"
    "checked always, contents with --verify. The exit code is 1 if a checkpoint that was complete\n"
    "is damaged.";

// Returns the folder that the flags name.
absl::StatusOr<std::string> FolderOf(const std::string& path, const std::string& folder,
                                     const std::vector<std::string>& overrides) {
  if (path.empty() == folder.empty()) {
    return absl::InvalidArgumentError(
        "psctl checkpoints: has neither or both of --config and --folder, allowed: one of the two");
  }
  if (!folder.empty()) {
    if (overrides.empty()) return folder;
    return absl::InvalidArgumentError(
        "psctl checkpoints: --set: has no effect with --folder, allowed: with --config");
  }
  ASSIGN_OR_RETURN(const Config config, Config::Load(path, overrides));
  if (!config.proto().recovery().has_checkpoint()) {
    return config.FieldError("recovery.checkpoint",
                             "is missing, so that this run writes no checkpoints, allowed: a "
                             "config with it, or psctl checkpoints --folder=DIR");
  }
  return config.proto().recovery().checkpoint().folder();
}

}  // namespace

int CheckpointsVerb(int argc, const char* const* argv) {
  std::string path;
  std::string folder;
  std::vector<std::string> overrides;
  bool verify = false;
  std::string format = "table";
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &path},
      {"folder", "DIR", "the folder, instead of the config's recovery.checkpoint.folder", &folder},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated", &overrides},
      {"verify", "", "reads all that a run would go on from, and compares the checksums", &verify},
      FormatFlag(&format),
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  const absl::StatusOr<std::string> where = FolderOf(path, folder, overrides);
  if (!where.ok()) return PrintError(where.status(), kPsctlUsage);
  RealStorage storage;
  const absl::StatusOr<CheckpointsReport> report = MakeCheckpointsReport(
      &storage, *where, verify ? Verification::kFull : Verification::kQuick, absl::Now());
  if (!report.ok()) return PrintError(report.status(), kPsctlFailure);
  std::cout << (format == "json" ? CheckpointsJson(*report) : CheckpointsText(*report));
  return report->has_damaged() ? kPsctlFailure : kPsctlOk;
}

}  // namespace evenshard
