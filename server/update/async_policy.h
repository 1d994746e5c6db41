#ifndef EVENSHARD_SERVER_UPDATE_ASYNC_POLICY_H_
#define EVENSHARD_SERVER_UPDATE_ASYNC_POLICY_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "server/store/chunk_observer.h"
#include "server/update/norm_limit.h"
#include "server/update/reply_sinks.h"
#include "server/update/staleness_bound.h"
#include "server/update/unconfirmed_replies.h"
#include "server/update/update_policy.h"

namespace evenshard {

// The policies ASYNC and SSP. See UpdatePolicy.
class AsyncPolicy final : public UpdatePolicy {
 public:
  AsyncPolicy(const PlannedConfig& config, ParameterStore* store, ChunkObservers observers,
              const Clock* clock);

  absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                    std::shared_ptr<ReplySink> sink) override;
  bool Counts(int index, const GradientHeader& header) const override;
  absl::StatusOr<SlotPosition> Adopt(const PolicyView& view) override;
  absl::Status Resume(int) override { return absl::OkStatus(); }  // no update is held up
  void Confirm(int index, uint64_t change) override;
  Start Join(uint32_t rank, uint64_t incarnation) override;
  void Leave(uint32_t rank, uint64_t incarnation) override;
  void Abandon() override;
  absl::Duration PushWait(uint32_t) const override { return absl::ZeroDuration(); }
  // Another worker's push may update the chunk at any time.
  bool RepliesMayBorrow() const override { return false; }
  // Updates that may be lost are other workers', who repeat them.
  bool IsConfirmed(int) const override { return true; }
  bool MayReply(int) const override { return true; }
  void Defer(int, DueReply) override {}
  std::vector<Pending> PendingUpdates() const override;
  void FillStats(ShardStats* stats) const override {
    if (limit_.has_value()) limit_->FillStats(stats);
  }

 private:
  // A push that has been counted, and whose reply waits for other workers.
  struct Waiting {
    uint32_t rank;
    uint64_t iteration;
    absl::Time since;
    ReplySinks sinks = {};
  };

  struct History {
    History(StoredChunk* chunk, int workers) : chunk(chunk), has_pushed(workers) {}

    StoredChunk* const chunk;
    // The view whose pushes are taken; null after Abandon.
    std::shared_ptr<const PolicyView> view ABSL_GUARDED_BY(chunk->mutex);
    std::vector<bool> has_pushed ABSL_GUARDED_BY(chunk->mutex);  // by rank, since the shard is here
    std::vector<Waiting> waiting ABSL_GUARDED_BY(chunk->mutex);  // at most one of each rank
    UnconfirmedReplies unconfirmed ABSL_GUARDED_BY(chunk->mutex);
  };

  // Applies a push that is new.
  absl::Status Apply(int index, History& history, Gradient gradient)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(history.chunk->mutex);
  // Answers a push that has been counted, now or when the worker may go on.
  void Answer(History& history, const GradientHeader& header, std::shared_ptr<ReplySink> sink,
              std::vector<DueReply>& released) ABSL_EXCLUSIVE_LOCKS_REQUIRED(history.chunk->mutex);
  // Adds the replies to `released` whose workers may go on.
  void Release(History& history, std::vector<DueReply>& released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(history.chunk->mutex);
  // Does the same for all chunks, and sends them: some worker is not waited for any more.
  void ReleaseAll();

  // Constant after construction.
  const PlannedConfig& config_;
  const bool divides_by_staleness_;
  ShardCounters* const counters_;
  const ChunkObservers observers_;
  const Clock* const clock_;

  std::optional<NormLimit> limit_;       // update.max_norm
  std::optional<StalenessBound> bound_;  // SSP
  std::deque<History> histories_;        // parallel to the store's chunks
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_ASYNC_POLICY_H_
