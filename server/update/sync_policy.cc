// An update under SYNC and QUORUM, step by step:
//   1. Push checks, under the chunk's lock, that the push counts: its view, its session, and its
//      iteration, which is that of the chunk's clock. A repeat is answered and not counted.
//   2. Advance adds the gradient to the sum (in deterministic order: when those of all lower ranks
//      are added; under QUORUM: when it is known whose gradients count, see quorum.h). With
//      update.max_norm it is scaled down before if it is too large (norm_limit.h).
//   3. When every push that the update waits for is here, the last gradient applies the optimizer
//      instead (Add). The observers are asked before: one may hold the update up until Resume. With
//      clipping (clipping.h), AddWhole adds that gradient too, and the norm must be known as well.
//   4. Complete moves the chunk's clock on, tells the observers, and releases the replies, which
//      one of them may keep back until Confirm.

#include "server/update/sync_policy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/update/push_checks.h"

namespace evenshard {
namespace {

// How far an onlooker may be ahead of the chunk: a worker waits for the iteration before its first,
// which is at most two after the present one.
constexpr uint64_t kMaxAhead = 2;

}  // namespace

SyncPolicy::SyncPolicy(const PlannedConfig& config, ParameterStore* store, ChunkObservers observers,
                       const Clock* clock, Clipping* clipping, Quorum* quorum)
    : workers_(config.workers()),
      deterministic_(config.proto().update().deterministic()),
      counters_(&store->counters()),
      observers_(std::move(observers)),
      clock_(clock),
      clipping_(clipping),
      quorum_(quorum),
      pacing_(workers_, config.proto().limits().lead_bytes(), clock) {
  if (config.proto().update().max_norm() > 0) limit_.emplace(config, store);
  const auto view = std::make_shared<const PolicyView>(
      PolicyView{.worker_sets = std::make_shared<const WorkerSets>(workers_)});
  for (StoredChunk& chunk : store->chunks()) {
    Gather& gather = gathers_.emplace_back(&chunk, workers_);
    absl::MutexLock lock(&chunk.mutex);
    gather.view = view;
  }
}

absl::Status SyncPolicy::Push(int index, WorkerSession& session, Gradient gradient,
                              std::shared_ptr<ReplySink> sink) {
  Gather& gather = gathers_[index];
  StoredChunk& chunk = *gather.chunk;
  const GradientHeader header = gradient.header;
  std::vector<DueReply> released;
  absl::Status taken;
  if (limit_.has_value()) limit_->Measure(chunk.info(), session, &gradient);
  {
    absl::MutexLock lock(&gather.chunk->mutex);
    chunk.mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
    ASSIGN_OR_RETURN(const bool is_taken, IsTaken(gather.view.get(), session, header));
    if (!is_taken) return absl::OkStatus();
    const uint64_t iteration = chunk.clock().iteration;
    if (header.iteration < iteration) {
      AnswerPast(gather, session, gradient, std::move(sink), released);
    } else if (header.iteration == iteration && gather.pushed[header.worker].here) {
      CountPush(PushOutcome::kRepeated, chunk, gradient, session, counters_);
      AddSink(std::move(sink), gather.pushed[header.worker].sinks);
    } else {
      taken = TakeNew(index, gather, session, std::move(gradient), std::move(sink), released);
    }
  }
  SendReplies(chunk.info().id, released);
  Tell();
  return taken;
}

void SyncPolicy::Tell() {
  if (quorum_ != nullptr) quorum_->TellArrivals();
  if (clipping_ != nullptr) clipping_->TellPart();
}

void SyncPolicy::AnswerPast(Gather& gather, WorkerSession& session, const Gradient& gradient,
                            std::shared_ptr<ReplySink> sink, std::vector<DueReply>& released) {
  const GradientHeader& header = gradient.header;
  gather.chunk->mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
  const bool dropped =
      quorum_ != nullptr && !header.onlooks && !quorum_->Counts(header.worker, header.iteration);
  if (dropped) quorum_->NoteDropped(header.worker, header.iteration);
  if (!header.onlooks) {
    CountPush(dropped ? PushOutcome::kDropped : PushOutcome::kRepeated, *gather.chunk, gradient,
              session, counters_);
  }
  // The update that counted the push, or did not, may still wait for its confirmation.
  gather.unconfirmed.Add({std::move(sink), header.iteration, dropped}, released);
}

absl::Status SyncPolicy::TakeNew(int index, Gather& gather, WorkerSession& session,
                                 Gradient gradient, std::shared_ptr<ReplySink> sink,
                                 std::vector<DueReply>& released) {
  StoredChunk& chunk = *gather.chunk;
  chunk.mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
  const GradientHeader& header = gradient.header;
  const uint64_t iteration = chunk.clock().iteration;
  const WorkerSets& worker_sets = *gather.view->worker_sets;
  if (header.skip && header.iteration - iteration <= kMaxAhead &&
      (header.onlooks || !worker_sets.Contains(header.worker, header.iteration))) {
    gather.onlookers.Add(header.worker, header.iteration, std::move(sink));
    return absl::OkStatus();
  }
  if (header.iteration != iteration) {
    return WrongIteration(chunk, header, absl::StrCat("iteration ", iteration));
  }
  if (!worker_sets.Contains(header.worker, iteration)) {
    return WrongIteration(chunk, header, "no gradient of this worker at that iteration");
  }
  RETURN_IF_ERROR(CheckVersion(chunk, header));
  RETURN_IF_ERROR(TakeKind(chunk, header, &gather.kind));
  CountPush(OutcomeOf(header), chunk, gradient, session, counters_);
  pacing_.Pushed(header.worker, chunk.info().size * sizeof(float));
  if (gather.arrived++ == 0) gather.first_arrival = clock_->Now();
  if (worker_sets.WaitsFor(header.worker, iteration)) ++gather.awaited;
  if (quorum_ != nullptr) quorum_->Arrived(header.worker, iteration);
  gather.newest = header.worker;
  gather.pushed[gather.newest] = {
      .here = true, .sinks = {std::move(sink)}, .held = std::move(gradient)};
  return Advance(index, gather, released);
}

bool SyncPolicy::Counts(int index, const GradientHeader& header) const {
  const Gather& gather = gathers_[index];
  absl::ReaderMutexLock lock(&gather.chunk->mutex);
  return gather.view != nullptr && IsOfView(*gather.view, header) &&
         header.iteration == gather.chunk->clock().iteration && !gather.pushed[header.worker].here;
}

bool SyncPolicy::IsIn(const Gather& gather, uint32_t rank) const {
  return gather.pushed[rank].here &&
         (quorum_ == nullptr || quorum_->Counts(rank, gather.chunk->clock().iteration));
}

bool SyncPolicy::IsQuorumComplete(const Gather& gather) const {
  const uint64_t iteration = gather.chunk->clock().iteration;
  if (!quorum_->IsKnown(iteration)) return false;
  // The slot's primary before had all pushes of the set, and this one may have to get them again.
  for (const uint32_t rank : gather.view->worker_sets->At(iteration)) {
    const bool waits =
        quorum_->Counts(rank, iteration) && gather.view->worker_sets->WaitsFor(rank, iteration);
    if (waits && !gather.pushed[rank].here) return false;
  }
  return true;
}

bool SyncPolicy::IsComplete(const Gather& gather) const {
  if (quorum_ != nullptr) return IsQuorumComplete(gather);
  // If the whole worker set of the iteration is leaving, the update waits for no push, and maybe
  // none comes.
  const uint64_t iteration = gather.chunk->clock().iteration;
  const WorkerSets& worker_sets = *gather.view->worker_sets;
  return gather.awaited == worker_sets.Waited(iteration) && !worker_sets.At(iteration).empty();
}

bool SyncPolicy::MayUpdate(int index, const Gather& gather) const {
  if (gather.view->handing_over || gather.view->worker_set_changes) return false;
  if (IsClipped(gather) && !clipping_->Coefficient(gather.chunk->clock().iteration)) return false;
  return observers_.BeforeChange(index, *gather.chunk);
}

absl::Status SyncPolicy::Advance(int index, Gather& gather, std::vector<DueReply>& released) {
  const bool complete = IsComplete(gather);
  const auto told = [this](const absl::Status& status) {
    if (!status.ok()) observers_.ChangeFailed(status);
    return status;
  };
  if (complete && IsClipped(gather)) {
    RETURN_IF_ERROR(told(AddWhole(gather)));
  }
  if (complete && !MayUpdate(index, gather)) return absl::OkStatus();
  if (!complete && quorum_ != nullptr) return absl::OkStatus();
  ChunkChange change{.rate = {.iteration = static_cast<int64_t>(gather.chunk->clock().trained()),
                              .pushed = gather.kind.numbers,
                              .assigned = gather.kind.assigned}};
  if (!complete) return AddHeld(gather, complete, &change);
  if (gather.kind.assigned.has_value() && !gather.pushed[0].here)
    return NothingAssigned(*gather.chunk);
  RETURN_IF_ERROR(told(AddHeld(gather, complete, &change)));
  Complete(index, gather, std::move(change), released);
  // The next iteration may wait for no push.
  return IsComplete(gather) ? Advance(index, gather, released) : absl::OkStatus();
}

absl::Status SyncPolicy::AddHeld(Gather& gather, bool complete, ChunkChange* change) {
  Gradients gradients = TakeHeld(gather);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const bool last = complete && i + 1 == gradients.size();
    RETURN_IF_ERROR(Add(gather, std::move(gradients[i]), last, change));
  }
  return complete && gradients.empty() && gather.summed > 0 ? ApplySum(gather, change)
                                                            : absl::OkStatus();
}

SyncPolicy::Gradients SyncPolicy::TakeHeld(Gather& gather) {
  Gradients gradients;
  const auto take = [&](Pushed& pushed) {
    if (pushed.held.has_value()) gradients.push_back(*std::move(pushed.held));
    pushed.held.reset();
  };
  if (quorum_ != nullptr) {
    for (int rank = 0; rank < workers_; ++rank) {
      if (IsIn(gather, rank)) take(gather.pushed[rank]);
    }
    return gradients;
  }
  if (!deterministic_) {
    take(gather.pushed[gather.newest]);
    return gradients;
  }
  // A member of the worker set that has not pushed stops those behind it, if the update waits for
  // it.
  const uint64_t iteration = gather.chunk->clock().iteration;
  const WorkerSets& worker_sets = *gather.view->worker_sets;
  const std::vector<uint32_t>& worker_set = worker_sets.At(iteration);
  const auto passed = worker_set.begin() + gather.added;
  // One that no update waits for may come when those behind it have been added.
  if (std::find(worker_set.begin(), passed, gather.newest) != passed) {
    take(gather.pushed[gather.newest]);
  }
  for (; gather.added < static_cast<int>(worker_set.size()); ++gather.added) {
    const uint32_t rank = worker_set[gather.added];
    if (!gather.pushed[rank].here && worker_sets.WaitsFor(rank, iteration)) break;
    take(gather.pushed[rank]);
  }
  return gradients;
}

absl::Status SyncPolicy::Add(Gather& gather, Gradient gradient, bool last, ChunkChange* change) {
  StoredChunk& chunk = *gather.chunk;
  chunk.mutex.AssertHeld();  // the same mutex, as clang's analysis does not see
  if (!gradient.header.skip) gather.weight += gradient.header.weight;
  if (gradient.header.absent) ++gather.absent;
  if (!gradient.header.has_data()) {
    return last && gather.summed > 0 ? ApplySum(gather, change) : absl::OkStatus();
  }
  if (limit_.has_value()) {
    const uint64_t iteration = chunk.clock().iteration;
    const auto takes_part = [iteration, &worker_sets = *gather.view->worker_sets](uint32_t rank) {
      return worker_sets.Contains(rank, iteration);
    };
    gather.pushed[gradient.header.worker].norm = limit_->Limit(chunk, takes_part, &gradient);
  }
  const auto encoding = static_cast<Encoding>(gradient.header.encoding);
  const bool first = gather.summed++ == 0;
  if (!last) {
    if (first) {
      chunk.StartSum(gradient.data, encoding);
    } else {
      chunk.AddToSum(gradient.data, encoding);
    }
    return absl::OkStatus();
  }
  if (first) {
    change->scale = gather.Scale();
    RETURN_IF_ERROR(chunk.ApplyGradient(gradient.data, encoding, change->scale, change->rate));
    change->gradient = std::move(gradient.data);
    change->encoding = encoding;
    change->owner = std::move(gradient.owner);
    return absl::OkStatus();
  }
  if (observers_.ReadGradients()) {  // they need the whole sum
    chunk.AddToSum(gradient.data, encoding);
    return ApplySum(gather, change);
  }
  return chunk.ApplySumAndGradient(gradient.data, encoding, gather.Scale(), change->rate);
}

bool SyncPolicy::IsClipped(const Gather& gather) const {
  return clipping_ != nullptr && !gather.kind.assigned.has_value() &&
         clipping_->Clips(gather.chunk->info(), gather.chunk->clock().iteration);
}

absl::Status SyncPolicy::AddWhole(Gather& gather) {
  if (std::exchange(gather.is_whole, true)) return absl::OkStatus();
  RETURN_IF_ERROR(AddHeld(gather, /*complete=*/false, /*change=*/nullptr));
  return clipping_->AddSum(*gather.chunk, gather.summed > 0, gather.Scale());
}

absl::Status SyncPolicy::ApplySum(Gather& gather, ChunkChange* change) {
  change->scale = gather.Scale();
  if (IsClipped(gather)) {
    change->scale *= clipping_->Coefficient(gather.chunk->clock().iteration).value();
  }
  RETURN_IF_ERROR(gather.chunk->ApplySum(change->scale, change->rate));
  const absl::Span<const float> sum = gather.chunk->sum();
  change->gradient = {{reinterpret_cast<const char*>(sum.data()), sum.size() * sizeof(float)}};
  return absl::OkStatus();
}

void SyncPolicy::Complete(int index, Gather& gather, ChunkChange change,
                          std::vector<DueReply>& released) {
  if (gather.arrived > 0) {
    counters_->straggler_wait_nanoseconds +=
        absl::ToInt64Nanoseconds(clock_->Now() - gather.first_arrival);
  }
  ChunkClock& clock = gather.chunk->mutable_clock();
  ChunkChange::Workers& in = change.workers;
  for (int rank = 0; rank < workers_; ++rank) {
    if (!IsIn(gather, rank)) continue;
    in.push_back(rank);
    NormLimit::Note(rank, gather.pushed[rank].norm, &clock);
  }
  const uint64_t iteration = clock.iteration++;
  clock.all_absent = gather.absent > 0 && gather.absent == static_cast<int>(in.size());
  clock.CountExchange(gather.kind.assigned.has_value());
  const std::optional<uint64_t> number = observers_.Changed(index, *gather.chunk, change);
  if (number.has_value()) gather.unconfirmed.Begin(*number);
  const auto release = [&](ReplySinks& sinks, uint64_t answered,
                           bool dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex) {
    for (std::shared_ptr<ReplySink>& sink : sinks) {
      gather.unconfirmed.Add({std::move(sink), answered, dropped}, released);
    }
  };
  for (int rank = 0; rank < workers_; ++rank) {
    Pushed& pushed = gather.pushed[rank];
    if (pushed.here) {
      const bool dropped = !std::binary_search(in.begin(), in.end(), rank);
      if (dropped) quorum_->NoteDropped(rank, iteration);
      release(pushed.sinks, iteration, dropped);
    }
    pushed = Pushed();
  }
  for (Onlookers::Onlooker& onlooker : gather.onlookers.TakeThrough(iteration)) {
    release(onlooker.sinks, onlooker.iteration, /*dropped=*/false);
  }
  gather.arrived = gather.awaited = gather.added = gather.summed = gather.absent = 0;
  gather.weight = 0;
  gather.is_whole = false;
  gather.kind = {};
}

}  // namespace evenshard
