#include "common/control/run_checkpoints.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr char kFolderField[] = "recovery.checkpoint.folder";

}  // namespace

absl::StatusOr<std::unique_ptr<RunCheckpoints>> RunCheckpoints::Open(const PlannedConfig& config,
                                                                     uint64_t run, Start start,
                                                                     absl::string_view who,
                                                                     Storage* storage) {
  const std::string& path = config.proto().recovery().checkpoint().folder();
  std::unique_ptr<RunCheckpoints> checkpoints(new RunCheckpoints(storage, path));
  if (start != Start::kGoesOn) {
    ASSIGN_OR_RETURN(checkpoints->resume_, FindStart(config, start == Start::kResumed, storage));
  }
  auto owner = FolderOwner::Take(storage, path, run, who);
  if (owner.ok()) {
    checkpoints->owner_ = *std::move(owner);
  } else if (start != Start::kGoesOn || !absl::IsFailedPrecondition(owner.status()) ||
             !CheckOwner(storage, path, run).ok()) {
    return owner.status();
  }
  return checkpoints;
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> RunCheckpoints::FindStart(
    const PlannedConfig& config, bool resumes, Storage* storage) {
  const RunCheckpoints checkpoints(storage, config.proto().recovery().checkpoint().folder());
  const std::string& path = checkpoints.folder_.path();
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> found, checkpoints.folder_.List());
  const bool all_incomplete = std::all_of(found.begin(), found.end(), [](const auto& info) {
    return info.state == CheckpointInfo::State::kIncomplete;
  });
  if (!found.empty() && all_incomplete) {
    // A run that ended before its first checkpoint was complete has left nothing to go on from.
    spdlog::warn("no checkpoint in {} is complete: the run begins anew", path);
    return ViewCoordinator::Checkpoint{.name = "", .generation = found[0].id.generation};
  }
  if (!resumes && !found.empty()) {
    return config.FieldError(
        kFolderField, absl::StrCat("is \"", path, "\", which has checkpoints of an earlier run (",
                                   found[0].id.ToString(),
                                   "), allowed: --resume to go on from the newest, or another "
                                   "folder"));
  }
  if (!resumes) return std::nullopt;
  ASSIGN_OR_RETURN(std::optional<ViewCoordinator::Checkpoint> newest, checkpoints.Newest());
  if (newest.has_value()) return newest;
  return config.FieldError(kFolderField,
                           absl::StrCat("is \"", path,
                                        "\", which has no complete checkpoint to resume from, "
                                        "allowed: a folder with one, or no --resume"));
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> RunCheckpoints::Newest() const {
  std::vector<CheckpointInfo> passed_over;
  ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> newest,
                   folder_.Newest(Verification::kFull, &passed_over));
  for (const CheckpointInfo& info : passed_over) {
    const bool is_damaged = info.state == CheckpointInfo::State::kDamaged;
    if (!is_damaged && !newest.has_value()) continue;  // there is nothing that it is newer than
    spdlog::warn("passed over {}, which is {}: {}", info.id.ToString(),
                 is_damaged ? "damaged" : "incomplete", info.why);
  }
  if (!newest.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const uint64_t next_generation, folder_.NextGeneration());
  ViewCoordinator::Checkpoint checkpoint = {.name = newest->id.ToString(),
                                            .generation = next_generation - 1,
                                            .iteration = newest->id.iteration};
  if (newest->facts.has_value()) {
    checkpoint.worker_set.Assign(newest->facts->worker_set.begin(),
                                 newest->facts->worker_set.end());
  }
  return checkpoint;
}

}  // namespace evenshard
