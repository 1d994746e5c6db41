#include "server/recovery/checkpoint_completion.h"

#include "absl/status/statusor.h"
#include "spdlog/spdlog.h"

namespace evenshard {

void CheckpointCompletion::Add(const CheckpointId& id, uint64_t number) {
  absl::MutexLock lock(&mutex_);
  written_[id] = number;
}

std::optional<CheckpointId> CheckpointCompletion::newest() const {
  absl::MutexLock lock(&mutex_);
  return written_.empty() ? durable_ : std::optional(written_.rbegin()->first);
}

size_t CheckpointCompletion::waiting() const {
  absl::MutexLock lock(&mutex_);
  return written_.size();
}

CheckpointCompletion::Found CheckpointCompletion::Look(const Progress& progress, absl::Time now) {
  std::map<CheckpointId, uint64_t> written;
  {
    absl::MutexLock lock(&mutex_);
    written = written_;
  }
  Found found;
  for (const auto& [id, number] : written) {
    found.status.Update(TryComplete(id, progress, now, &found));
  }
  if (progress.left_out_to.has_value()) {
    // What cannot be removed now is removed at a later cut.
    options_.folder
        ->RemoveLeftOut(*progress.left_out_to, progress.writes, progress.run, options_.slot,
                        options_.shards)
        .IgnoreError();
  }
  return found;
}

absl::Status CheckpointCompletion::TryComplete(const CheckpointId& id, const Progress& progress,
                                               absl::Time now, Found* found) {
  const absl::StatusOr<bool> complete =
      options_.folder->TryComplete(id, progress.run, options_.shards, now);
  if (!complete.ok()) {
    // Another slot has left it out, and removed it.
    const bool is_removed = absl::IsNotFound(complete.status());
    const bool may_pass = !is_removed && !absl::IsDataLoss(complete.status()) &&
                          !absl::IsFailedPrecondition(complete.status());
    absl::MutexLock lock(&mutex_);
    if (!may_pass) written_.erase(id);
    return is_removed ? absl::OkStatus() : complete.status();
  }
  if (!*complete) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    found->number = written_.at(id);
    written_.erase(written_.begin(), written_.upper_bound(id));
    durable_ = id;
    durable_since_ = now;
  }
  if (options_.slot != 0 && !progress.is_over) return absl::OkStatus();
  spdlog::info("the checkpoint of iteration {} is complete", id.iteration);
  return options_.folder->RemoveOld(options_.keep);
}

void CheckpointCompletion::FillStats(absl::Time now, ShardStats::Recovery* recovery) const {
  absl::MutexLock lock(&mutex_);
  if (!durable_.has_value()) return;
  recovery->set_checkpoint_iteration(durable_->iteration);
  recovery->set_checkpoint_age_seconds(absl::ToDoubleSeconds(now - durable_since_));
}

}  // namespace evenshard
