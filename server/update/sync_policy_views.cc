// How the policy follows views, and what others ask of it beside pushes.

#include <algorithm>
#include <limits>
#include <utility>

#include "common/base/status_macros.h"
#include "server/update/sync_policy.h"

namespace evenshard {

void SyncPolicy::SetView(Gather& gather, std::shared_ptr<const PolicyView> view) {
  gather.view = std::move(view);
  gather.awaited = 0;
  for (int rank = 0; rank < workers_; ++rank) {
    if (!gather.pushed[rank].here) continue;
    gather.awaited +=
        gather.view->worker_sets->WaitsFor(rank, gather.chunk->clock().iteration) ? 1 : 0;
  }
}

absl::StatusOr<SlotPosition> SyncPolicy::Adopt(const PolicyView& view) {
  const auto shared = std::make_shared<const PolicyView>(view);
  SlotPosition position;
  for (Gather& gather : gathers_) {
    absl::MutexLock lock(&gather.chunk->mutex);
    if (gather.view == nullptr) return absl::CancelledError("the run has failed");
    SetView(gather, shared);
    const uint64_t iteration = gather.chunk->clock().iteration;
    position.iteration = std::max(position.iteration, iteration);
    position.least_iteration = std::min(position.least_iteration, iteration);
    position.assignments = std::max(position.assignments, gather.chunk->clock().assignments);
  }
  if (quorum_ != nullptr) quorum_->Adopt(view, position.least_iteration);
  RestartPacing(*view.worker_sets, position.least_iteration);
  for (size_t index = 0; index < gathers_.size(); ++index) {
    RETURN_IF_ERROR(Resume(static_cast<int>(index)));
  }
  return position;
}

void SyncPolicy::RestartPacing(const WorkerSets& worker_sets, uint64_t least_iteration) {
  // Chunks are an iteration apart, and a worker that joins begins some iterations later.
  constexpr uint64_t kFurthest = 1000;
  if (gathers_.empty()) return;
  const std::vector<uint32_t>& ranks = worker_sets.At(std::numeric_limits<uint64_t>::max() - 1);
  std::vector<uint64_t> first(workers_, least_iteration);  // at which the rank counts
  std::vector<std::optional<int64_t>> pushed(workers_);
  for (const uint32_t rank : ranks) {
    const uint64_t latest = least_iteration + kFurthest;
    while (first[rank] < latest && !worker_sets.Contains(rank, first[rank])) ++first[rank];
    pushed[rank] = 0;
  }
  for (const Gather& gather : gathers_) {
    const int64_t bytes = gather.chunk->info().size * sizeof(float);
    absl::ReaderMutexLock lock(&gather.chunk->mutex);
    for (const uint32_t rank : ranks) {
      const uint64_t next = gather.chunk->clock().iteration + (gather.pushed[rank].here ? 1 : 0);
      const uint64_t ahead = std::max(next, first[rank]) - least_iteration;
      *pushed[rank] += static_cast<int64_t>(std::min(ahead, kFurthest)) * bytes;
    }
  }
  pacing_.Restart(pushed);
}

absl::Status SyncPolicy::Resume(int index) {
  Gather& gather = gathers_[index];
  std::vector<DueReply> released;
  absl::Status advanced;
  {
    absl::MutexLock lock(&gather.chunk->mutex);
    if (gather.view == nullptr) return absl::OkStatus();
    advanced = Advance(index, gather, released);
  }
  SendReplies(gather.chunk->info().id, released);
  Tell();
  return advanced;
}

void SyncPolicy::Confirm(int index, uint64_t change) {
  Gather& gather = gathers_[index];
  std::vector<DueReply> due;
  {
    absl::MutexLock lock(&gather.chunk->mutex);
    due = gather.unconfirmed.Confirm(change);
  }
  SendReplies(gather.chunk->info().id, due);
}

bool SyncPolicy::IsConfirmed(int index) const {
  const Gather& gather = gathers_[index];
  gather.chunk->mutex.AssertReaderHeld();
  return !gather.unconfirmed.waits();
}

void SyncPolicy::Defer(int index, DueReply reply) {
  Gather& gather = gathers_[index];
  std::vector<DueReply> due;
  {
    absl::MutexLock lock(&gather.chunk->mutex);
    if (gather.view == nullptr) return;
    gather.unconfirmed.Add(std::move(reply), due);
  }
  SendReplies(gather.chunk->info().id, due);
}

UpdatePolicy::Start SyncPolicy::Join(uint32_t rank, uint64_t incarnation) {
  if (quorum_ != nullptr) quorum_->Join(rank, incarnation);
  Start start{.iteration = std::numeric_limits<uint64_t>::max()};
  for (const Gather& gather : gathers_) {
    absl::ReaderMutexLock lock(&gather.chunk->mutex);
    // The update before may be lost with this process while it is not confirmed, and the sum of its
    // gradients is still being sent. So the worker waits for the confirmation too.
    const ChunkClock clock =
        gather.unconfirmed.waits() ? gather.chunk->clock().Former() : gather.chunk->clock();
    if (clock.iteration >= start.iteration) continue;
    start = {clock.iteration, clock.assignments, clock.recent_assignments};
  }
  return gathers_.empty() ? Start() : start;
}

std::vector<UpdatePolicy::Pending> SyncPolicy::PendingUpdates() const {
  std::vector<Pending> pending;
  for (const Gather& gather : gathers_) {
    absl::MutexLock lock(&gather.chunk->mutex);
    if (gather.arrived == 0 || gather.view == nullptr || IsComplete(gather)) continue;
    Pending& update = pending.emplace_back();
    update.chunk = gather.chunk->info().id;
    const uint64_t iteration = gather.chunk->clock().iteration;
    update.iteration = gather.chunk->clock().trained();
    update.since = gather.first_arrival;
    for (const uint32_t rank : gather.view->worker_sets->At(iteration)) {
      const bool waits =
          gather.view->worker_sets->WaitsFor(rank, iteration) &&
          (quorum_ == nullptr || !quorum_->IsKnown(iteration) || quorum_->Counts(rank, iteration));
      if (waits && !gather.pushed[rank].here) update.missing.push_back(rank);
    }
    // Everybody's push has come, and the slots agree on that.
    if (quorum_ != nullptr && update.missing.empty()) pending.pop_back();
  }
  return pending;
}

void SyncPolicy::Abandon() {
  for (Gather& gather : gathers_) {
    // Destroyed after unlocking, because streams may end with them.
    std::vector<Pushed> dropped;
    Onlookers onlookers;
    UnconfirmedReplies unconfirmed;
    absl::MutexLock lock(&gather.chunk->mutex);
    gather.view = nullptr;
    gather.pushed.swap(dropped);
    std::swap(gather.onlookers, onlookers);
    std::swap(gather.unconfirmed, unconfirmed);
  }
}

}  // namespace evenshard
