#include "common/control/run_checkpoints.h"

#include <algorithm>
#include <stop_token>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr char kFolderField[] = "recovery.checkpoint.folder";

// How long a run that resumes waits until it tries again to read a checkpoint.
constexpr absl::Duration kReadPause = absl::Milliseconds(100);

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> FindNewest(
    const CheckpointFolder& folder, bool passes_over_unreadable) {
  std::vector<CheckpointInfo> passed_over;
  ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> newest,
                   folder.Newest(Verification::kFull, passes_over_unreadable, &passed_over));
  for (const CheckpointInfo& info : passed_over) {
    const bool is_damaged = info.state == CheckpointInfo::State::kDamaged;
    if (!is_damaged && !newest.has_value()) continue;  // there is nothing that it is newer than
    spdlog::warn("passed over {}, which {}: {}", info.id.ToString(),
                 info.is_unreadable ? "cannot be read"
                 : is_damaged       ? "is damaged"
                                    : "is incomplete",
                 info.why);
  }
  if (!newest.has_value()) return std::nullopt;
  ASSIGN_OR_RETURN(const uint64_t next_generation, folder.NextGeneration());
  ViewCoordinator::Checkpoint checkpoint = {.name = newest->id.ToString(),
                                            .generation = next_generation - 1,
                                            .trained = newest->id.iteration};
  if (newest->facts.has_value()) {
    checkpoint.iteration = newest->facts->exchange;
    checkpoint.worker_set.Assign(newest->facts->worker_set.begin(),
                                 newest->facts->worker_set.end());
  }
  return checkpoint;
}

// Refuses what no shard could go on from. Whether it can be read is each shard's to say.
absl::Status CheckFits(const PlannedConfig& config, const CheckpointFolder& folder,
                       const std::string& name, Storage* storage) {
  const std::optional<CheckpointId> id = ParseCheckpointId(name);
  // What a worker declares is not known yet.
  if (!id.has_value() || config.is_from_workers()) return absl::OkStatus();
  const absl::Status fits = CheckpointReader::Open(storage, folder.path(), config, *id).status();
  if (!absl::IsFailedPrecondition(fits)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      fits.message(), "; allowed with --resume: a config that fits it, or another folder"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RunCheckpoints>> RunCheckpoints::Open(const PlannedConfig& config,
                                                                     uint64_t run, Start start,
                                                                     absl::string_view who,
                                                                     Storage* storage,
                                                                     const Clock& clock) {
  const std::string& path = config.proto().recovery().checkpoint().folder();
  std::unique_ptr<RunCheckpoints> checkpoints(new RunCheckpoints(storage, path, run, who));
  if (start == Start::kGoesOn) {
    RETURN_IF_ERROR(checkpoints->Hold());
    return checkpoints;
  }
  ASSIGN_OR_RETURN(checkpoints->owner_,
                   FolderOwner::Take(storage, path, run, who, [&]() -> absl::Status {
                     ASSIGN_OR_RETURN(checkpoints->resume_,
                                      FindStart(config, start == Start::kResumed, storage, clock));
                     return absl::OkStatus();
                   }));
  return checkpoints;
}

absl::Status RunCheckpoints::Hold() {
  if (owner_ != nullptr) return absl::OkStatus();
  const auto is_ours = [this] { return CheckOwner(storage_, folder_.path(), run_); };
  absl::Status ours = is_ours();
  // Only then, since Take would make a folder that is not mounted.
  if (ours.ok()) {
    auto owner = FolderOwner::Take(storage_, folder_.path(), run_, who_, is_ours);
    if (owner.ok()) {
      owner_ = *std::move(owner);
      return absl::OkStatus();
    }
    ours = is_ours();
  }
  return absl::IsFailedPrecondition(ours) ? ours : absl::OkStatus();
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> RunCheckpoints::FindStart(
    const PlannedConfig& config, bool resumes, Storage* storage, const Clock& clock) {
  const CheckpointFolder folder(storage, config.proto().recovery().checkpoint().folder());
  const std::string& path = folder.path();
  ASSIGN_OR_RETURN(const std::vector<CheckpointInfo> found, folder.List());
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
  // An error may pass. Until then, an older checkpoint would lose what need not be lost. The pauses
  // are counted, too: where nothing may block, as in a simulation, the clock stands still.
  absl::Duration left = absl::Seconds(config.proto().limits().startup_seconds());
  const absl::Time until = clock.Now() + left;
  auto newest = FindNewest(folder, /*passes_over_unreadable=*/false);
  if (!newest.ok() && left > absl::ZeroDuration()) {
    spdlog::warn("{}; trying again for {}", std::string(newest.status().message()),
                 absl::FormatDuration(left));
  }
  while (!newest.ok() && left > absl::ZeroDuration()) {
    clock.SleepUntil(clock.Now() + kReadPause, std::stop_token());
    left = std::min(left - kReadPause, until - clock.Now());
    newest = FindNewest(folder, /*passes_over_unreadable=*/left <= absl::ZeroDuration());
  }
  if (!newest.ok()) return newest;
  if (newest->has_value()) {
    RETURN_IF_ERROR(CheckFits(config, folder, (*newest)->name, storage));
    return newest;
  }
  return config.FieldError(kFolderField,
                           absl::StrCat("is \"", path,
                                        "\", which has no complete checkpoint to resume from, "
                                        "allowed: a folder with one, or no --resume"));
}

absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> RunCheckpoints::Newest(
    bool passes_over_unreadable) const {
  RETURN_IF_ERROR(CheckOwner(storage_, folder_.path(), run_));
  return FindNewest(folder_, passes_over_unreadable);
}

}  // namespace evenshard
