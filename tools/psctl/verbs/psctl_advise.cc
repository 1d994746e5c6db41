#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/process/command_line.h"
#include "common/process/log.h"
#include "tools/psctl/advice/advice.h"
#include "tools/psctl/advice/advice_chart.h"
#include "tools/psctl/advice/advice_request.h"
#include "tools/psctl/advice/advice_text.h"
#include "tools/psctl/advice/advised_config.h"
#include "tools/psctl/verbs/psctl.h"

namespace evenshard {
namespace {

constexpr char kUsage[] =
    "psctl advise --config=FILE [--set field=value ...] [flags]\n"
    "psctl advise --model=NAME --device=NAME [--workers=N] [--link_gbps=RATE] [flags]\n\n"
    "Simulates the ways in which a cluster can train: one worker alone, a ring, and shards with\n"
    "each placement, on hosts of their own or on the workers', each with the fastest schedule.\n"
    "Prints them by images per second, says which to take, and what 16 bits, INT8, local steps\n"
    "and updates without the slowest worker would give, which compute something else. Nothing\n"
    "runs. `link bytes` pass the busiest worker's link each way in an iteration.";

absl::Status WriteFile(const std::string& path, const std::string& text) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->WriteAt(0, text));
  return file->Commit();
}

// Refuses a path at which a file is, or at which none can be written.
absl::Status CheckNew(const char* flag, const std::string& path, bool replaces) {
  std::error_code error;  // of which CheckWritable() knows more
  if (!replaces && std::filesystem::exists(path, error)) {
    return absl::AlreadyExistsError(absl::StrCat("--", flag, ": \"", Printable(path),
                                                 "\" exists, allowed: a new file, or --force"));
  }
  return CheckWritable(path);
}

}  // namespace

int AdviseVerb(int argc, const char* const* argv) {
  AdviceRequest request;
  std::string format = "table";
  std::string write;
  std::string svg;
  bool force = false;
  const Flag flags[] = {
      {"config", "FILE", "the run's config", &request.config},
      {"set", "FIELD=VALUE", "overrides a field of the config; may be repeated",
       &request.overrides},
      {"model", "NAME", "in its place, a built-in model", &request.model},
      {"workers", "N", "how many workers there are; default: the config's, or 4", &request.workers},
      {"link_gbps", "RATE", "rate of every link in Gb/s; default: the config's, or 10",
       &request.link_gbps},
      {"device", "NAME", "what the workers compute on; default: the config's", &request.device},
      {"batch", "N", "images of one worker in one iteration; default: the config's, or 32",
       &request.batch},
      {"server_hosts", "N",
       "hosts for shards beside the workers'; default: as many as the config has shards, or with "
       "--model as there are workers",
       &request.server_hosts},
      {.name = "latency_us",
       .value = "TIME",
       .help =
           "how long a message takes to arrive and to be taken up, in microseconds; default: 100",
       .target = &request.latency_us,
       .may_be_zero = true},
      FormatFlag(&format),
      {"write", "FILE", "writes the config of the way to take", &write},
      {"svg", "FILE", "draws a chart", &svg},
      {"force", "", "replaces files that are there", &force},
  };
  if (const auto code = StartProgram("psctl", kUsage, flags, argc, argv)) return *code;
  for (const auto& [flag, path] : {std::pair("write", &write), std::pair("svg", &svg)}) {
    if (path->empty()) continue;
    const absl::Status writable = CheckNew(flag, *path, force);
    if (!writable.ok()) return PrintError(writable, kPsctlUsage);
  }
  std::error_code error;
  if (!write.empty() && std::filesystem::weakly_canonical(write, error) ==
                            std::filesystem::weakly_canonical(svg, error)) {
    const auto same = absl::InvalidArgumentError(absl::StrCat(
        "--write and --svg are the same file, ", Printable(svg), ", allowed: a file for each"));
    return PrintError(same, kPsctlUsage);
  }
  const absl::StatusOr<AdviceCluster> cluster = ReadRequest(request);
  if (!cluster.ok()) return PrintError(cluster.status(), kPsctlUsage);
  const absl::StatusOr<Advice> advice = Advise(*cluster);
  if (!advice.ok()) return PrintError(advice.status(), kPsctlUsage);
  std::cout << (format == "json" ? AdviceJson(*cluster, *advice) : AdviceText(*cluster, *advice));
  absl::Status written;
  if (!svg.empty()) written.Update(WriteFile(svg, AdviceChart(*cluster, *advice)));
  if (!write.empty()) {
    written.Update(WriteFile(write, AdvisedConfig(*cluster, advice->same[advice->chosen])));
  }
  return written.ok() ? kPsctlOk : PrintError(written, kPsctlFailure);
}

}  // namespace evenshard
