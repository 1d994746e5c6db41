#include "server/update_policy.h"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/push_pacing.h"

namespace ps {
namespace {

absl::Status WrongIteration(const StoredChunk& chunk, const GradientHeader& header,
                            uint64_t expected) {
  return absl::FailedPreconditionError(
      absl::StrCat("worker ", header.worker, " pushed chunk ", chunk.info().id, " for iteration ",
                   header.iteration, "; the shard expects iteration ", expected));
}

// Counts a push that is not a repeat, and how many updates behind it is.
absl::Status CountPush(const StoredChunk& chunk, const GradientHeader& header,
                       ShardCounters* counters) ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex) {
  if (header.base_version > chunk.version()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.worker, " pushed chunk ", chunk.info().id, " computed from version ",
        header.base_version, "; the shard is at version ", chunk.version()));
  }
  counters->CountStaleness(chunk.version() - header.base_version);
  ++(header.skip ? counters->skipped_pushes : counters->pushes);
  return absl::OkStatus();
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

  absl::Status Push(int index, Gradient gradient, std::shared_ptr<ReplySink> sink) override {
    Gather& gather = gathers_[index];
    const GradientHeader header = gradient.header;
    std::vector<std::shared_ptr<ReplySink>> released;
    {
      absl::MutexLock lock(&gather.chunk->mutex);
      if (gather.pushed.empty()) return absl::CancelledError("the run has failed");
      Pushed& own = gather.pushed[header.worker];
      if (header.iteration == gather.iteration && own.sink != nullptr) {
        ++counters_->repeated_pushes;
        own.sink = std::move(sink);
        return absl::OkStatus();
      }
      if (header.iteration + 1 == gather.iteration) {
        ++counters_->repeated_pushes;
        released.push_back(std::move(sink));
      } else if (header.iteration != gather.iteration) {
        return WrongIteration(*gather.chunk, header, gather.iteration);
      } else {
        absl::Status counted = CountPush(*gather.chunk, header, counters_);
        if (!counted.ok()) return counted;
        pacing_.Pushed(header.worker, gather.chunk->info().size * sizeof(float));
        own.sink = std::move(sink);
        if (gather.arrived++ == 0) gather.first_arrival = clock_->Now();
        Contribute(gather, std::move(gradient));
        if (gather.arrived == workers_) released = Complete(gather);
      }
    }
    for (const auto& reply : released) reply->Reply(gather.chunk->info().id, header.iteration);
    return absl::OkStatus();
  }

  // In deterministic order the slowest may be held back for one that is ahead.
  absl::Duration PushWait(uint32_t worker) const override {
    return deterministic_ ? absl::ZeroDuration() : pacing_.Wait(worker);
  }

  // A worker sends the next gradient of a chunk only after it holds this reply, and the
  // next update needs the next gradient of every worker.
  bool RepliesMayBorrow() const override { return true; }

  absl::Status CheckOverdue(absl::Time since, const Membership& membership) const override {
    for (const Gather& gather : gathers_) {
      absl::MutexLock lock(&gather.chunk->mutex);
      if (gather.arrived == 0 || gather.pushed.empty()) continue;
      std::vector<std::string> missing;
      bool in_vain = false;
      for (int worker = 0; worker < workers_; ++worker) {
        if (gather.pushed[worker].sink != nullptr) continue;
        missing.push_back(membership.Describe(worker));
        in_vain |= membership.HasLeft(worker);
      }
      if (!in_vain && gather.first_arrival >= since) continue;
      const size_t listed = std::min<size_t>(missing.size(), 10);
      const size_t more = missing.size() - listed;
      missing.resize(listed);
      return absl::DeadlineExceededError(absl::StrCat(
          "chunk ", gather.chunk->info().id, " of iteration ", gather.iteration,
          in_vain ? " waits in vain" : " has waited longer than limits.exchange_seconds", " (",
          absl::FormatDuration(absl::Trunc(clock_->Now() - gather.first_arrival, absl::Seconds(1))),
          ") for ", absl::StrJoin(missing, ", "),
          more > 0 ? absl::StrCat(" and ", more, " more") : ""));
    }
    return absl::OkStatus();
  }

  void Abandon() override {
    for (Gather& gather : gathers_) {
      std::vector<Pushed> dropped;  // after the lock: streams may end by it
      absl::MutexLock lock(&gather.chunk->mutex);
      gather.pushed.swap(dropped);
    }
  }

 private:
  struct Pushed {
    std::shared_ptr<ReplySink> sink;  // null until this worker's push has arrived
    Gradient held;                    // deterministic order: until the lower ranks arrived
  };

  // The update of one chunk that is being gathered.
  struct Gather {
    Gather(StoredChunk* chunk, int workers) : chunk(chunk), pushed(workers) {}

    StoredChunk* const chunk;
    uint64_t iteration ABSL_GUARDED_BY(chunk->mutex) = 0;
    std::vector<Pushed> pushed ABSL_GUARDED_BY(chunk->mutex);  // by rank; empty: abandoned
    int arrived ABSL_GUARDED_BY(chunk->mutex) = 0;
    int taken ABSL_GUARDED_BY(chunk->mutex) = 0;   // of them; deterministic: in order of ranks
    int summed ABSL_GUARDED_BY(chunk->mutex) = 0;  // of those: not skipped
    absl::Time first_arrival ABSL_GUARDED_BY(chunk->mutex);
  };

  void Contribute(Gather& gather, Gradient gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex) {
    if (!deterministic_) {
      Add(gather, gradient);
      return;
    }
    gather.pushed[gradient.header.worker].held = std::move(gradient);
    while (gather.taken < workers_ && gather.pushed[gather.taken].sink != nullptr) {
      Add(gather, std::exchange(gather.pushed[gather.taken].held, Gradient()));
    }
  }

  // Takes the next gradient into the sum; the last one makes the update, with the mean.
  void Add(Gather& gather, const Gradient& gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex) {
    const bool first = gather.summed == 0;
    const bool last = ++gather.taken == workers_;
    if (gradient.header.skip) {
      if (last && !first) gather.chunk->ApplySum(1.0f / gather.summed, gather.iteration);
      return;
    }
    ++gather.summed;
    if (first && last) {
      gather.chunk->ApplyGradient(gradient.data, gather.iteration);
    } else if (first) {
      gather.chunk->StartSum(gradient.data);
    } else if (last) {
      gather.chunk->ApplySumAndGradient(gradient.data, 1.0f / gather.summed, gather.iteration);
    } else {
      gather.chunk->AddToSum(gradient.data);
    }
  }

  // Begins the next iteration; returns whom to answer.
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

  absl::Status Push(int index, Gradient gradient, std::shared_ptr<ReplySink> sink) override {
    History& history = histories_[index];
    const GradientHeader& header = gradient.header;
    {
      absl::MutexLock lock(&history.chunk->mutex);
      uint64_t& next = history.next_iteration[header.worker];
      if (header.iteration < next) {
        ++counters_->repeated_pushes;
      } else {
        absl::Status counted = CountPush(*history.chunk, header, counters_);
        if (!counted.ok()) return counted;
        next = header.iteration + 1;
        if (!header.skip) history.chunk->ApplyGradient(gradient.data, header.iteration);
      }
    }
    sink->Reply(history.chunk->info().id, header.iteration);
    return absl::OkStatus();
  }

  void Abandon() override {}  // nothing waits

  absl::Duration PushWait(uint32_t) const override { return absl::ZeroDuration(); }

  // Another worker's push may update the chunk at any time.
  bool RepliesMayBorrow() const override { return false; }

  absl::Status CheckOverdue(absl::Time, const Membership&) const override {
    return absl::OkStatus();  // nobody waits for anybody
  }

 private:
  struct History {
    History(StoredChunk* chunk, int workers) : chunk(chunk), next_iteration(workers) {}

    StoredChunk* const chunk;
    // By rank: pushes of an earlier iteration are repeats.
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
