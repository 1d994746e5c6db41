#include "server/update_policy.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/push_pacing.h"

namespace ps {
namespace {

// Whether `iteration` is the one before `next`. The largest number is not the one before 0.
bool IsBefore(uint64_t iteration, uint64_t next) {
  return iteration < next && next - iteration == 1;
}

absl::Status WrongIteration(const StoredChunk& chunk, const GradientHeader& header,
                            const std::string& allowed) {
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.info().id, " for iteration ",
                   header.iteration, "; the shard expects ", allowed));
}

// REQUIRES: the lock of the chunk is held until the push has been counted; see WorkerSession.
absl::Status CheckHoldsRank(const WorkerSession& session, const GradientHeader& header) {
  if (session.holds_rank()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", header.worker, " pushed chunk ", header.chunk,
                   " after its rank had passed on: it has left, is lost or was replaced"));
}

absl::Status CheckVersion(const StoredChunk& chunk, const GradientHeader& header)
    ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) {
  if (header.base_version <= chunk.version()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "worker ", header.worker, " pushed chunk ", chunk.info().id, " computed from version ",
      header.base_version, "; the shard is at version ", chunk.version()));
}

// Counts a push that was taken. The chunk's lock ensures that it is counted before its reply is
// sent and before a successor of the worker learns where to start.
void Count(PushOutcome outcome, const StoredChunk& chunk, const Gradient& gradient,
           WorkerSession& session, ShardCounters* counters)
    ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) {
  const uint64_t bytes = SegmentsSize(gradient.data);
  session.CountPush(outcome, gradient.header.iteration, bytes);
  counters->received.Add(outcome, bytes);
  if (outcome == PushOutcome::kCounted) {
    counters->CountStaleness(chunk.version() - gradient.header.base_version);
  }
}

PushOutcome OutcomeOf(const GradientHeader& header) {
  return header.skip ? PushOutcome::kSkipped : PushOutcome::kCounted;
}

class SyncPolicy final : public UpdatePolicy {
 public:
  SyncPolicy(const Config& config, ParameterStore* store, ShardCounters* counters,
             const Clock* clock)
      : workers_(config.workers()),
        deterministic_(config.proto().update().deterministic()),
        counters_(counters),
        clock_(clock),
        pacing_(workers_, config.proto().limits().lead_bytes(), clock) {
    for (StoredChunk& chunk : store->chunks()) gathers_.emplace_back(&chunk, workers_);
  }

  absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                    std::shared_ptr<ReplySink> sink) override {
    Gather& gather = gathers_[index];
    StoredChunk& chunk = *gather.chunk;
    const GradientHeader header = gradient.header;
    std::vector<std::shared_ptr<ReplySink>> released;
    {
      absl::MutexLock lock(&chunk.mutex);
      if (gather.pushed.empty()) return absl::CancelledError("the run has failed");
      RETURN_IF_ERROR(CheckHoldsRank(session, header));
      Pushed& own = gather.pushed[header.worker];
      const bool waits = header.iteration == gather.iteration && own.sink != nullptr;
      if (waits || IsBefore(header.iteration, gather.iteration)) {
        Count(PushOutcome::kRepeated, chunk, gradient, session, counters_);
        (waits ? own.sink : released.emplace_back()) = std::move(sink);
      } else if (header.iteration != gather.iteration) {
        return WrongIteration(chunk, header, absl::StrCat("iteration ", gather.iteration));
      } else {
        RETURN_IF_ERROR(CheckVersion(chunk, header));
        Count(OutcomeOf(header), chunk, gradient, session, counters_);
        pacing_.Pushed(header.worker, chunk.info().size * sizeof(float));
        own.sink = std::move(sink);
        if (gather.arrived++ == 0) gather.first_arrival = clock_->Now();
        RETURN_IF_ERROR(Contribute(gather, std::move(gradient)));
        if (gather.arrived == workers_) released = Complete(gather);
      }
    }
    for (const auto& reply : released) reply->Reply(chunk.info().id, header.iteration);
    return absl::OkStatus();
  }

  // In deterministic order, the slowest worker may itself wait until a lower rank that is ahead has
  // pushed, so pacing could stop both.
  absl::Duration PushWait(uint32_t worker) const override {
    return deterministic_ ? absl::ZeroDuration() : pacing_.Wait(worker);
  }

  // A worker sends its next gradient of a chunk only after it has received this reply, and the next
  // update needs the next gradient of every worker.
  bool RepliesMayBorrow() const override { return true; }

  std::vector<Pending> PendingUpdates() const override {
    std::vector<Pending> pending;
    for (const Gather& gather : gathers_) {
      absl::MutexLock lock(&gather.chunk->mutex);
      if (gather.arrived == 0 || gather.pushed.empty()) continue;
      Pending& update = pending.emplace_back();
      update.chunk = gather.chunk->info().id;
      update.iteration = gather.iteration;
      update.since = gather.first_arrival;
      for (int worker = 0; worker < workers_; ++worker) {
        if (gather.pushed[worker].sink == nullptr) update.missing.push_back(worker);
      }
    }
    return pending;
  }

  void Abandon() override {
    for (Gather& gather : gathers_) {
      std::vector<Pushed> dropped;  // destroyed after unlocking, because streams may end with it
      absl::MutexLock lock(&gather.chunk->mutex);
      gather.pushed.swap(dropped);
    }
  }

 private:
  struct Pushed {
    std::shared_ptr<ReplySink> sink;  // null until this worker's push has arrived
    Gradient held;                    // in deterministic order, until all lower ranks have arrived
  };

  // The next update of a chunk, for which gradients are being gathered.
  struct Gather {
    Gather(StoredChunk* chunk, int workers) : chunk(chunk), pushed(workers) {}

    StoredChunk* const chunk;
    uint64_t iteration ABSL_GUARDED_BY(chunk->mutex) = 0;
    std::vector<Pushed> pushed ABSL_GUARDED_BY(chunk->mutex);  // by rank; empty after Abandon
    int arrived ABSL_GUARDED_BY(chunk->mutex) = 0;             // pushes that have come
    int taken ABSL_GUARDED_BY(chunk->mutex) = 0;               // arrived ones that Add has seen
    int summed ABSL_GUARDED_BY(chunk->mutex) = 0;              // taken ones without `skip`
    absl::Time first_arrival ABSL_GUARDED_BY(chunk->mutex);
  };

  absl::Status Contribute(Gather& gather, Gradient gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex) {
    if (!deterministic_) return Add(gather, gradient);
    gather.pushed[gradient.header.worker].held = std::move(gradient);
    absl::Status added;
    while (added.ok() && gather.taken < workers_ && gather.pushed[gather.taken].sink != nullptr) {
      added = Add(gather, std::exchange(gather.pushed[gather.taken].held, Gradient()));
    }
    return added;
  }

  // Adds the next gradient to the sum. The last one applies the update with the mean instead.
  absl::Status Add(Gather& gather, const Gradient& gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex) {
    StoredChunk& chunk = *gather.chunk;
    const bool first = gather.summed == 0;
    const bool last = ++gather.taken == workers_;
    if (gradient.header.skip) {
      return last && !first ? chunk.ApplySum(1.0f / gather.summed, gather.iteration)
                            : absl::OkStatus();
    }
    ++gather.summed;
    if (first && last) return chunk.ApplyGradient(gradient.data, gather.iteration);
    if (last) {
      return chunk.ApplySumAndGradient(gradient.data, 1.0f / gather.summed, gather.iteration);
    }
    if (first) {
      chunk.StartSum(gradient.data);
    } else {
      chunk.AddToSum(gradient.data);
    }
    return absl::OkStatus();
  }

  // Begins the next iteration and returns the sinks to which replies are due.
  std::vector<std::shared_ptr<ReplySink>> Complete(Gather& gather)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex) {
    counters_->straggler_wait_nanoseconds +=
        absl::ToInt64Nanoseconds(clock_->Now() - gather.first_arrival);
    std::vector<std::shared_ptr<ReplySink>> released;
    for (Pushed& pushed : gather.pushed) {
      released.push_back(std::exchange(pushed.sink, nullptr));
    }
    gather.arrived = gather.taken = gather.summed = 0;
    ++gather.iteration;
    return released;
  }

  const int workers_;
  const bool deterministic_;
  ShardCounters* const counters_;
  const Clock* const clock_;
  PushPacing pacing_;
  std::deque<Gather> gathers_;  // parallel to the store's chunks
};

class AsyncPolicy final : public UpdatePolicy {
 public:
  AsyncPolicy(int workers, ParameterStore* store, ShardCounters* counters) : counters_(counters) {
    for (StoredChunk& chunk : store->chunks()) histories_.emplace_back(&chunk, workers);
  }

  absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                    std::shared_ptr<ReplySink> sink) override {
    History& history = histories_[index];
    StoredChunk& chunk = *history.chunk;
    const GradientHeader& header = gradient.header;
    {
      absl::MutexLock lock(&chunk.mutex);
      RETURN_IF_ERROR(CheckHoldsRank(session, header));
      uint64_t& next = history.next_iteration[header.worker];
      if (IsBefore(header.iteration, next)) {
        Count(PushOutcome::kRepeated, chunk, gradient, session, counters_);
      } else if (header.iteration < next || header.iteration - next > kMaxGap) {
        return WrongIteration(
            chunk, header,
            absl::StrCat(next > 0 ? absl::StrCat(next - 1, " (a repeat) or ") : "", "iterations ",
                         next, " to ", next + kMaxGap));
      } else {
        RETURN_IF_ERROR(CheckVersion(chunk, header));
        Count(OutcomeOf(header), chunk, gradient, session, counters_);
        next = header.iteration + 1;
        if (!header.skip) {
          RETURN_IF_ERROR(chunk.ApplyGradient(gradient.data, header.iteration));
        }
      }
    }
    sink->Reply(chunk.info().id, header.iteration);
    return absl::OkStatus();
  }

  void Abandon() override {}  // no push waits

  absl::Duration PushWait(uint32_t) const override { return absl::ZeroDuration(); }

  // Another worker's push may update the chunk at any time.
  bool RepliesMayBorrow() const override { return false; }

  std::vector<Pending> PendingUpdates() const override { return {}; }  // no update waits

 private:
  struct History {
    History(StoredChunk* chunk, int workers) : chunk(chunk), next_iteration(workers) {}

    StoredChunk* const chunk;
    // The iteration after the latest that was taken, by rank.
    std::vector<uint64_t> next_iteration ABSL_GUARDED_BY(chunk->mutex);
  };

  ShardCounters* const counters_;
  std::deque<History> histories_;  // parallel to the store's chunks
};

}  // namespace

std::unique_ptr<UpdatePolicy> UpdatePolicy::Create(const Config& config, ParameterStore* store,
                                                   ShardCounters* counters, const Clock* clock) {
  if (config.proto().update().policy() == Update::SYNC) {
    return std::make_unique<SyncPolicy>(config, store, counters, clock);
  }
  return std::make_unique<AsyncPolicy>(config.workers(), store, counters);
}

}  // namespace ps
