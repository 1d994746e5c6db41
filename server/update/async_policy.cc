#include "server/update/async_policy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/update/push_checks.h"

namespace evenshard {

AsyncPolicy::AsyncPolicy(const PlannedConfig& config, ParameterStore* store,
                         ChunkObservers observers)
    : counters_(&store->counters()), observers_(std::move(observers)) {
  const auto view = std::make_shared<const PolicyView>();
  for (StoredChunk& chunk : store->chunks()) {
    History& history = histories_.emplace_back(&chunk);
    absl::MutexLock lock(&chunk.mutex);
    history.view = view;
    chunk.mutable_clock().next_iteration.resize(config.workers());
  }
}

absl::Status AsyncPolicy::Push(int index, WorkerSession& session, Gradient gradient,
                               std::shared_ptr<ReplySink> sink) {
  History& history = histories_[index];
  StoredChunk& chunk = *history.chunk;
  const GradientHeader header = gradient.header;
  std::vector<DueReply> released;
  {
    absl::MutexLock lock(&history.chunk->mutex);
    chunk.mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
    ASSIGN_OR_RETURN(const bool is_taken, IsTaken(history.view.get(), session, header));
    if (!is_taken) return absl::OkStatus();
    uint64_t& next = chunk.mutable_clock().next_iteration[header.worker];
    if (header.iteration < next) {
      CountPush(PushOutcome::kRepeated, chunk, gradient, session, counters_);
    } else if (header.iteration - next > kMaxGap) {
      return WrongIteration(
          chunk, header,
          absl::StrCat(next > 0 ? absl::StrCat("up to ", next - 1, " (repeats) or ") : "",
                       "iterations ", next, " to ", next + kMaxGap));
    } else {
      RETURN_IF_ERROR(CheckVersion(chunk, header));
      if (chunk.NeedsInitial() && header.iteration > 0 && header.has_data()) {
        const std::string refusal =
            absl::StrCat("worker ", header.worker, " pushed a gradient of chunk ", header.chunk,
                         ", for which worker 0 has yet to push the initial parameters");
        // With views, a primary that had them may have been lost before its replica had them.
        // Worker 0 pushes them again, as nobody has answered it.
        return header.view > 0 ? absl::UnavailableError(absl::StrCat(refusal, "; try again"))
                               : absl::FailedPreconditionError(refusal);
      }
      CountPush(OutcomeOf(header), chunk, gradient, session, counters_);
      next = header.iteration + 1;
      ChunkClock& clock = chunk.mutable_clock();
      // Where values are assigned, no iteration lies before them.
      const uint64_t behind = std::min(header.iteration, clock.assignments);
      ChunkChange change{.rate = {.iteration = static_cast<int64_t>(header.iteration - behind),
                                  .pushed = header.hyperparameters},
                         .workers = {header.worker}};
      if (header.assigned.has_value()) change.rate.assigned = {.array = *header.assigned};
      if (header.has_data()) {
        change.encoding = static_cast<Encoding>(header.encoding);
        const absl::Status applied =
            chunk.ApplyGradient(gradient.data, change.encoding, change.scale, change.rate);
        if (!applied.ok()) {
          observers_.ChangeFailed(applied);
          return applied;
        }
        if (header.assigned.has_value()) clock.CountExchange(/*assigned=*/true);
        change.gradient = std::move(gradient.data);
        change.owner = std::move(gradient.owner);
      }
      const std::optional<uint64_t> number = observers_.Changed(index, chunk, change);
      if (number.has_value()) history.unconfirmed.Begin(*number);
    }
    history.unconfirmed.Add({std::move(sink), header.iteration}, released);
  }
  SendReplies(chunk.info().id, released);
  return absl::OkStatus();
}

bool AsyncPolicy::Counts(int index, const GradientHeader& header) const {
  const History& history = histories_[index];
  absl::ReaderMutexLock lock(&history.chunk->mutex);
  return history.view != nullptr && IsOfView(*history.view, header) &&
         header.iteration >= history.chunk->clock().next_iteration[header.worker];
}

absl::StatusOr<SlotPosition> AsyncPolicy::Adopt(const PolicyView& view) {
  const auto shared = std::make_shared<const PolicyView>(view);
  for (History& history : histories_) {
    absl::MutexLock lock(&history.chunk->mutex);
    history.view = shared;
  }
  return SlotPosition();
}

void AsyncPolicy::Confirm(int index, uint64_t change) {
  History& history = histories_[index];
  std::vector<DueReply> due;
  {
    absl::MutexLock lock(&history.chunk->mutex);
    due = history.unconfirmed.Confirm(change);
  }
  SendReplies(history.chunk->info().id, due);
}

void AsyncPolicy::Abandon() {
  for (History& history : histories_) {
    UnconfirmedReplies unconfirmed;  // destroyed after unlocking, because streams may end with it
    absl::MutexLock lock(&history.chunk->mutex);
    history.view = nullptr;
    std::swap(history.unconfirmed, unconfirmed);
  }
}

UpdatePolicy::Start AsyncPolicy::StartOf(uint32_t rank) const {
  Start start;
  for (const History& history : histories_) {
    absl::ReaderMutexLock lock(&history.chunk->mutex);
    // Worker 0 was lost in the middle of giving the initial parameters, or a checkpoint has
    // this chunk as it was before that. The others answer the push as a repeat.
    if (history.chunk->NeedsInitial()) return {};
    const ChunkClock& clock = history.chunk->clock();
    start.iteration = std::max(start.iteration, clock.next_iteration[rank]);
    start.assignments = std::min(start.iteration, clock.assignments);
  }
  return start;
}

}  // namespace evenshard
