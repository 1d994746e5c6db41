// A push under ASYNC and SSP, step by step:
//   1. Push checks, under the chunk's lock, that the push counts: its view, its session, and its
//      iteration, which is not before the worker's clock. A repeat is answered and not counted.
//   2. Apply makes it an update by itself, at the rate that its staleness allows (Asynchrony) and
//      no larger than update.max_norm allows (NormLimit), and tells the observers.
//   3. Answer releases the reply: under SSP when no other worker is too far behind, as
//      StalenessBound says, and under both when the observers have the change (Confirm). The push
//      itself may let others go on (Release).

#include "server/update/async_policy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/asynchrony.h"
#include "server/update/push_checks.h"

namespace evenshard {

AsyncPolicy::AsyncPolicy(const PlannedConfig& config, ParameterStore* store,
                         ChunkObservers observers, const Clock* clock)
    : config_(config),
      divides_by_staleness_(DividesByStaleness(config.proto())),
      counters_(&store->counters()),
      observers_(std::move(observers)),
      clock_(clock) {
  if (config.proto().update().max_norm() > 0) limit_.emplace(config, store);
  if (config.proto().update().policy() == Update::SSP) {
    bound_.emplace(config.proto().update().staleness(), config.workers());
  }
  const auto view = std::make_shared<const PolicyView>();
  for (StoredChunk& chunk : store->chunks()) {
    History& history = histories_.emplace_back(&chunk, config.workers());
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
  if (limit_.has_value()) limit_->Measure(chunk.info(), session, &gradient);
  {
    absl::MutexLock lock(&history.chunk->mutex);
    chunk.mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
    ASSIGN_OR_RETURN(const bool is_taken, IsTaken(history.view.get(), session, header));
    if (!is_taken) return absl::OkStatus();
    const uint64_t next = chunk.clock().next_iteration[header.worker];
    if (header.iteration < next) {
      CountPush(PushOutcome::kRepeated, chunk, gradient, session, counters_);
    } else if (const uint64_t last = bound_.has_value() || !history.has_pushed[header.worker]
                                         ? kMaxIteration
                                         : next + kMaxGap;
               header.iteration > last) {
      return WrongIteration(
          chunk, header,
          absl::StrCat(next > 0 ? absl::StrCat("up to ", next - 1, " (repeats) or ") : "",
                       "iterations ", next, " to ", last));
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
      RETURN_IF_ERROR(Apply(index, history, std::move(gradient)));
      history.has_pushed[header.worker] = true;
    }
    Answer(history, header, std::move(sink), released);
    Release(history, released);
  }
  SendReplies(chunk.info().id, released);
  return absl::OkStatus();
}

absl::Status AsyncPolicy::Apply(int index, History& history, Gradient gradient) {
  StoredChunk& chunk = *history.chunk;
  chunk.mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
  const GradientHeader& header = gradient.header;
  ChunkClock& clock = chunk.mutable_clock();
  clock.next_iteration[header.worker] = header.iteration + 1;
  // Where values are assigned, no iteration lies before them.
  const uint64_t behind = std::min(header.iteration, clock.assignments);
  ChunkChange change{.rate = {.iteration = static_cast<int64_t>(header.iteration - behind),
                              .pushed = header.hyperparameters,
                              .worker = header.worker},
                     .workers = {header.worker}};
  if (divides_by_staleness_ && header.has_data() &&
      config_.TensorOf(chunk.info()).role == TensorRole::kParameter) {
    change.rate.pushed.learning_rate =
        static_cast<float>(chunk.LearningRate(change.rate) / (1.0 + header.staleness));
  }
  if (header.assigned.has_value()) change.rate.assigned = {.array = *header.assigned};
  if (header.has_data() && chunk.sent().are_kept()) {
    change.rate.base_version = header.base_version;
    change.rate.sent_to = chunk.sent().NotedBut(header.worker);
  }
  if (limit_.has_value()) {
    const auto takes_part = [&left = history.view->left](uint32_t rank) {
      return !absl::c_linear_search(left, rank);
    };
    NormLimit::Note(header.worker, limit_->Limit(chunk, takes_part, &gradient), &clock);
  }
  if (header.has_data()) {
    change.encoding = static_cast<Encoding>(header.encoding);
    change.scale = 1.0f / header.weight;
    if (config_.TensorOf(chunk.info()).role == TensorRole::kRunningStatistic) {
      // Each worker pushes how far it is from what it has seen. All of that by all of them would
      // overshoot, the more the more batches lie in a push.
      change.scale /= static_cast<float>(config_.workers());
    }
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
  return absl::OkStatus();
}

void AsyncPolicy::Answer(History& history, const GradientHeader& header,
                         std::shared_ptr<ReplySink> sink, std::vector<DueReply>& released) {
  if (!bound_.has_value() ||
      bound_->MayGoOn(header.iteration, history.chunk->clock().next_iteration)) {
    history.unconfirmed.Add({std::move(sink), header.iteration}, released);
    return;
  }
  auto waiting = std::find_if(history.waiting.begin(), history.waiting.end(),
                              [&](const Waiting& each) { return each.rank == header.worker; });
  if (waiting != history.waiting.end() && waiting->iteration != header.iteration) {
    history.waiting.erase(waiting);  // of a start that the worker has given up
    waiting = history.waiting.end();
  }
  if (waiting == history.waiting.end()) {
    waiting = history.waiting.insert(
        waiting, {.rank = header.worker, .iteration = header.iteration, .since = clock_->Now()});
  }
  AddSink(std::move(sink), waiting->sinks);
}

void AsyncPolicy::Release(History& history, std::vector<DueReply>& released) {
  std::erase_if(history.waiting, [&](Waiting& waiting) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    if (!bound_->MayGoOn(waiting.iteration, history.chunk->clock().next_iteration)) return false;
    for (std::shared_ptr<ReplySink>& sink : waiting.sinks) {
      history.unconfirmed.Add({std::move(sink), waiting.iteration}, released);
    }
    return true;
  });
}

void AsyncPolicy::ReleaseAll() {
  for (History& history : histories_) {
    std::vector<DueReply> released;
    {
      absl::MutexLock lock(&history.chunk->mutex);
      Release(history, released);
    }
    SendReplies(history.chunk->info().id, released);
  }
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
  if (bound_.has_value() && bound_->Leave(view.left)) ReleaseAll();
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
    // Destroyed after unlocking, because streams may end with them.
    std::vector<Waiting> waiting;
    UnconfirmedReplies unconfirmed;
    absl::MutexLock lock(&history.chunk->mutex);
    history.view = nullptr;
    history.waiting.swap(waiting);
    std::swap(history.unconfirmed, unconfirmed);
  }
}

UpdatePolicy::Start AsyncPolicy::Join(uint32_t rank, uint64_t incarnation) {
  Start start;
  uint64_t others = 0;  // SSP: the least clock of the others, at the chunk where it is largest
  for (const History& history : histories_) {
    absl::ReaderMutexLock lock(&history.chunk->mutex);
    // Worker 0 was lost in the middle of giving the initial parameters, or a checkpoint has
    // this chunk as it was before that. The others answer the push as a repeat.
    if (history.chunk->NeedsInitial()) {
      start = {};
      others = 0;
      break;
    }
    const ChunkClock& clock = history.chunk->clock();
    start.iteration = std::max(start.iteration, clock.next_iteration[rank]);
    start.assignments = std::min(start.iteration, clock.assignments);
    if (!bound_.has_value()) continue;
    others = std::max(others, bound_->LeastOfOthers(rank, clock.next_iteration).value_or(0));
  }
  if (!bound_.has_value()) return start;
  const bool comes_back = bound_->ComesBack(rank, incarnation);
  if (comes_back) start.iteration = std::max(start.iteration, others);
  bound_->Join(rank, incarnation, comes_back ? start.iteration : 0);
  return start;
}

void AsyncPolicy::Leave(uint32_t rank, uint64_t incarnation) {
  if (bound_.has_value() && bound_->Leave(rank, incarnation)) ReleaseAll();
}

std::vector<UpdatePolicy::Pending> AsyncPolicy::PendingUpdates() const {
  std::vector<Pending> pending;
  if (!bound_.has_value()) return pending;  // nothing waits
  for (const History& history : histories_) {
    absl::ReaderMutexLock lock(&history.chunk->mutex);
    const ChunkClock& clock = history.chunk->clock();
    for (const Waiting& waiting : history.waiting) {
      const uint64_t behind = std::min(waiting.iteration, clock.assignments);
      pending.push_back({.chunk = history.chunk->info().id,
                         .iteration = waiting.iteration - behind,
                         .since = waiting.since,
                         .missing = bound_->Missing(waiting.iteration, clock.next_iteration)});
    }
  }
  return pending;
}

}  // namespace evenshard
