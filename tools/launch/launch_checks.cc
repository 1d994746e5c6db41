#include "tools/launch/launch_checks.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/listener.h"
#include "common/process/open_files.h"
#include "common/security/tls_files.h"
#include "worker/data/formats/dataset.h"

namespace evenshard {
namespace {

// Returns where a file written to `path` ends up, with all links followed. Nothing need exist
// there.
std::filesystem::path Destination(const std::string& path) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  std::error_code error;
  std::filesystem::path place = std::filesystem::absolute(path, error);
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(place, error); ++i) {
    place = place.parent_path() / std::filesystem::read_symlink(place, error);
  }
  const std::filesystem::path canonical = std::filesystem::weakly_canonical(place, error);
  return error ? place : canonical;
}

// Refuses two results with one destination, because one would replace the other.
absl::Status CheckDistinct(const LaunchOptions& options) {
  std::map<std::filesystem::path, std::string> users;  // by destination: "--save=a"
  for (const auto& [flag, path] :
       {std::pair("--save=", options.save), std::pair("--stats=", options.stats),
        std::pair("--summary=", options.summary), std::pair("--trace=", options.trace)}) {
    if (path.empty()) continue;
    const std::string user = absl::StrCat(flag, path);
    const auto [other, is_first] = users.emplace(Destination(path), user);
    if (!is_first) {
      return absl::InvalidArgumentError(
          absl::StrCat(other->second, " and ", user, " are the same file; give each its own"));
    }
  }
  return absl::OkStatus();
}

// Checks that the program that brings the model is the one that trains it.
absl::Status CheckProgram(const LaunchOptions& options, const PlannedConfig& config) {
  if (options.program.empty() != config.is_from_workers()) {
    return (options.summary.empty() && options.trace.empty()) || options.program.empty()
               ? absl::OkStatus()
               : absl::InvalidArgumentError(
                     "--summary and --trace are of the program worker, allowed: without PROGRAM");
  }
  return config.is_from_workers()
             ? config.FieldError("model.from_workers",
                                 "needs a program that brings the model, allowed: launch "
                                 "--config=FILE -- PROGRAM ARGUMENT ...")
             : config.FieldError("model",
                                 "is trained by the program worker, allowed with a program of your "
                                 "own: model { from_workers {} }");
}

// Refuses what only shards could give.
absl::Status CheckTopology(const LaunchOptions& options, const PlannedConfig& config) {
  if (config.is_ring() && !options.program.empty() && !options.save.empty()) {
    return absl::InvalidArgumentError(
        "--save: is given with topology RING and a program of your own, and nobody but that has "
        "the model, allowed: without it; let rank 0 of the program save its model");
  }
  return options.stats.empty() ? absl::OkStatus() : config.CheckHasShards();
}

absl::Status CheckRecovery(const LaunchOptions& options, const PlannedConfig& config) {
  if (config.proto().recovery().has_etcd()) {
    return config.FieldError(
        "recovery.etcd",
        "is for a run on several machines, where a process manager such as systemd starts each ps "
        "and each worker and starts it again when it fails; launch runs everything on this machine "
        "and decides itself which process has which role, allowed here: no recovery.etcd");
  }
  if (!options.resume || config.proto().recovery().has_checkpoint()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--resume: needs recovery.checkpoint in the config, which says where checkpoints are");
}

absl::Status CheckWorkers(const LaunchOptions& options, const PlannedConfig& config) {
  const bool has_stdin = options.stdin_rank != LaunchOptions::kNotGiven;
  if (has_stdin && (options.stdin_rank < 0 || options.stdin_rank >= config.workers())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--stdin: is ", options.stdin_rank, ", allowed: 0 to ", config.workers() - 1));
  }
  if (options.max_restarts != LaunchOptions::kNotGiven && options.max_restarts < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--max_restarts: is ", options.max_restarts, ", allowed: 0 or more"));
  }
  if (options.max_restarts > 0 && config.proto().recovery().worker_loss() == Recovery::FAIL) {
    return absl::InvalidArgumentError(
        "--max_restarts: needs recovery.worker_loss WAIT or CONTINUE in the config, so that the "
        "run outlives a worker");
  }
  return absl::OkStatus();
}

// Refuses a run in which no process could open all its connections.
absl::Status CheckOpenFiles(const PlannedConfig& config) {
  const ClusterConfig& proto = config.proto();
  const int64_t to_each = proto.limits().connections() + 1;
  const int64_t needed = config.is_ring()
                             ? to_each + Listener::FilesFor(to_each, proto.ring().address(0), proto)
                             : std::max(to_each * config.processes(),
                                        Listener::FilesFor(to_each * config.workers(),
                                                           config.process_address(0), proto));
  return ReserveOpenFiles(
      needed, absl::StrCat(config.workers(), " workers and ", config.processes(), " shards"));
}

absl::Status CheckData(const PlannedConfig& config) {
  if (config.is_from_workers() || config.proto().compute().backend() == Compute::EMULATED) {
    return absl::OkStatus();
  }
  return OpenDatasets(config).status();
}

// They are told to programs in lines.
absl::Status CheckOverrides(const LaunchOptions& options) {
  for (const std::string& change : options.overrides) {
    if (!absl::StrContains(change, '\n')) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--set: \"", Printable(change), "\" has a line break, allowed: FIELD=VALUE in one line"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckLaunch(const LaunchOptions& options, const PlannedConfig& config) {
  RETURN_IF_ERROR(CheckOverrides(options));
  RETURN_IF_ERROR(CheckSecurity(config.proto()));
  RETURN_IF_ERROR(CheckDistinct(options));
  RETURN_IF_ERROR(CheckProgram(options, config));
  RETURN_IF_ERROR(CheckTopology(options, config));
  RETURN_IF_ERROR(CheckRecovery(options, config));
  RETURN_IF_ERROR(CheckWorkers(options, config));
  RETURN_IF_ERROR(CheckOpenFiles(config));
  return CheckData(config);
}

}  // namespace evenshard
