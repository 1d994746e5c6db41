#ifndef EVENSHARD_SERVER_UPDATE_SYNC_POLICY_H_
#define EVENSHARD_SERVER_UPDATE_SYNC_POLICY_H_

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "server/agreement/clipping.h"
#include "server/agreement/quorum.h"
#include "server/store/chunk_observer.h"
#include "server/update/norm_limit.h"
#include "server/update/onlookers.h"
#include "server/update/push_checks.h"
#include "server/update/push_pacing.h"
#include "server/update/reply_sinks.h"
#include "server/update/unconfirmed_replies.h"
#include "server/update/update_policy.h"

namespace evenshard {

// The policies SYNC and QUORUM. See UpdatePolicy.
class SyncPolicy final : public UpdatePolicy {
 public:
  // `clipping` is null unless the config clips the mean, and `quorum` unless the policy is QUORUM.
  SyncPolicy(const PlannedConfig& config, ParameterStore* store, ChunkObservers observers,
             const Clock* clock, Clipping* clipping, Quorum* quorum);

  absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                    std::shared_ptr<ReplySink> sink) override;
  bool Counts(int index, const GradientHeader& header) const override;
  absl::StatusOr<SlotPosition> Adopt(const PolicyView& view) override;
  absl::Status Resume(int index) override;
  void Confirm(int index, uint64_t change) override;
  Start Join(uint32_t rank, uint64_t incarnation) override;
  // Under SYNC an update waits for the workers of its worker set, whoever has left.
  void Leave(uint32_t rank, uint64_t incarnation) override {
    if (quorum_ != nullptr) quorum_->Leave(rank, incarnation);
  }
  void Abandon() override;
  // In deterministic order, the slowest worker may itself wait until a lower rank that is ahead has
  // pushed, so pacing could stop both. Under QUORUM nobody waits for the slowest.
  absl::Duration PushWait(uint32_t worker) const override {
    return deterministic_ || quorum_ != nullptr ? absl::ZeroDuration() : pacing_.Wait(worker);
  }
  // Under SYNC a worker sends its next gradient of a chunk only after it has received this reply,
  // and the next update needs the next gradient of every worker. A worker that no update waits for
  // any more has lost its session, and what it still receives counts for nothing.
  bool RepliesMayBorrow() const override { return quorum_ == nullptr; }
  // Under QUORUM an update that this worker has no part in may follow before the reply is made.
  bool IsConfirmed(int index) const override;
  bool MayReply(int index) const override { return quorum_ == nullptr || IsConfirmed(index); }
  void Defer(int index, DueReply reply) override;
  std::vector<Pending> PendingUpdates() const override;
  void FillStats(ShardStats* stats) const override {
    if (quorum_ != nullptr) quorum_->FillStats(stats);
    if (limit_.has_value()) limit_->FillStats(stats);
  }

 private:
  struct Pushed {
    bool here = false;  // this worker's push of the iteration has come
    ReplySinks sinks = {};
    // The gradient until it is added: under QUORUM until it is known whose gradients count, in
    // deterministic order until all lower ranks' are, and otherwise only where it completes an
    // update that may not be made yet.
    std::optional<Gradient> held;
    double norm = 0;  // see NormLimit::Limit; of a gradient that has been added
  };

  // The next update of a chunk, for which gradients are being gathered.
  struct Gather {
    Gather(StoredChunk* chunk, int workers) : chunk(chunk), pushed(workers) {}

    // What makes the sum the mean.
    float Scale() const ABSL_SHARED_LOCKS_REQUIRED(chunk->mutex) {
      return 1.0f / static_cast<float>(weight);
    }

    StoredChunk* const chunk;
    // The view whose pushes are taken; null after Abandon.
    std::shared_ptr<const PolicyView> view ABSL_GUARDED_BY(chunk->mutex);
    std::vector<Pushed> pushed ABSL_GUARDED_BY(chunk->mutex);  // by rank
    int arrived ABSL_GUARDED_BY(chunk->mutex) = 0;             // pushes that have come
    int awaited ABSL_GUARDED_BY(chunk->mutex) = 0;  // those of workers that the update waits for
    // In deterministic order: members of the worker set that are done with.
    int added ABSL_GUARDED_BY(chunk->mutex) = 0;
    uint32_t newest ABSL_GUARDED_BY(chunk->mutex) = 0;  // the rank of the latest push
    // All of them are in the sum, before the update is made (clipping).
    bool is_whole ABSL_GUARDED_BY(chunk->mutex) = false;
    int summed ABSL_GUARDED_BY(chunk->mutex) = 0;     // gradients in the sum
    int absent ABSL_GUARDED_BY(chunk->mutex) = 0;     // those of zeros, which are not in it
    double weight ABSL_GUARDED_BY(chunk->mutex) = 0;  // of both
    PushedKind kind ABSL_GUARDED_BY(chunk->mutex);
    absl::Time first_arrival ABSL_GUARDED_BY(chunk->mutex);
    // Workers outside an iteration's worker set and, under QUORUM, those that were dropped.
    Onlookers onlookers ABSL_GUARDED_BY(chunk->mutex);
    UnconfirmedReplies unconfirmed ABSL_GUARDED_BY(chunk->mutex);
  };

  using Gradients = absl::InlinedVector<Gradient, 1>;

  // Answers a push of an iteration that the chunk is past.
  void AnswerPast(Gather& gather, WorkerSession& session, const Gradient& gradient,
                  std::shared_ptr<ReplySink> sink, std::vector<DueReply>& released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Takes a push of the iteration that the chunk is at, or of one to come.
  absl::Status TakeNew(int index, Gather& gather, WorkerSession& session, Gradient gradient,
                       std::shared_ptr<ReplySink> sink, std::vector<DueReply>& released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Adds what has come to the sum. Makes the update if everything has come and it may be made.
  absl::Status Advance(int index, Gather& gather, std::vector<DueReply>& released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Adds what is to be added now. With `complete`, that makes the update.
  absl::Status AddHeld(Gather& gather, bool complete, ChunkChange* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Where the update is clipped: adds what has come to the sum, all of it, and the sum to the norm.
  absl::Status AddWhole(Gather& gather) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  bool IsClipped(const Gather& gather) const ABSL_SHARED_LOCKS_REQUIRED(gather.chunk->mutex);
  // Whether all pushes that the update waits for have come and, under QUORUM, it is known whose
  // they are.
  bool IsComplete(const Gather& gather) const ABSL_SHARED_LOCKS_REQUIRED(gather.chunk->mutex);
  bool MayUpdate(int index, const Gather& gather) const
      ABSL_SHARED_LOCKS_REQUIRED(gather.chunk->mutex);
  bool IsQuorumComplete(const Gather& gather) const ABSL_SHARED_LOCKS_REQUIRED(gather.chunk->mutex);
  // Whether a worker's push of the chunk's iteration is here and is in the update.
  bool IsIn(const Gather& gather, uint32_t rank) const
      ABSL_SHARED_LOCKS_REQUIRED(gather.chunk->mutex);
  // Has others told what a push has changed. REQUIRES: no chunk's lock is held.
  void Tell();
  // Removes and returns the gradients that are to be added now, in order.
  Gradients TakeHeld(Gather& gather) ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Adds a gradient to the sum. The last one applies the update with the mean instead, and sets
  // `change` to what was applied.
  absl::Status Add(Gather& gather, Gradient gradient, bool last, ChunkChange* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  absl::Status ApplySum(Gather& gather, ChunkChange* change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Begins the next iteration, and adds the replies that are due to `released`.
  void Complete(int index, Gather& gather, ChunkChange change, std::vector<DueReply>& released)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Sets the chunk's view, and counts anew which pushes the update waits for.
  void SetView(Gather& gather, std::shared_ptr<const PolicyView> view)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(gather.chunk->mutex);
  // Tells the pacing where workers are, as a view may come in the middle of an iteration, and a
  // worker may count from a later one on. REQUIRES: no chunk is at an earlier iteration.
  void RestartPacing(const WorkerSets& worker_sets, uint64_t least_iteration);

  // Constant after construction.
  const int workers_;
  const bool deterministic_;
  ShardCounters* const counters_;
  const ChunkObservers observers_;
  const Clock* const clock_;
  Clipping* const clipping_;
  Quorum* const quorum_;

  std::optional<NormLimit> limit_;  // update.max_norm
  PushPacing pacing_;
  std::deque<Gather> gathers_;  // parallel to the store's chunks
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_SYNC_POLICY_H_
