#ifndef EVENSHARD_SERVER_UPDATE_ASYNC_POLICY_H_
#define EVENSHARD_SERVER_UPDATE_ASYNC_POLICY_H_

#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/placement/planned_config.h"
#include "server/store/chunk_observer.h"
#include "server/update/unconfirmed_replies.h"
#include "server/update/update_policy.h"

namespace evenshard {

// The policy ASYNC. See UpdatePolicy.
class AsyncPolicy final : public UpdatePolicy {
 public:
  AsyncPolicy(const PlannedConfig& config, ParameterStore* store, ChunkObservers observers);

  absl::Status Push(int index, WorkerSession& session, Gradient gradient,
                    std::shared_ptr<ReplySink> sink) override;
  bool Counts(int index, const GradientHeader& header) const override;
  absl::StatusOr<SlotPosition> Adopt(const PolicyView& view) override;
  absl::Status Resume(int) override { return absl::OkStatus(); }  // no update is held up
  void Confirm(int index, uint64_t change) override;
  Start StartOf(uint32_t rank) const override;
  void Abandon() override;
  absl::Duration PushWait(uint32_t) const override { return absl::ZeroDuration(); }
  // Another worker's push may update the chunk at any time.
  bool RepliesMayBorrow() const override { return false; }
  std::vector<Pending> PendingUpdates() const override { return {}; }  // no update waits

 private:
  struct History {
    explicit History(StoredChunk* chunk) : chunk(chunk) {}

    StoredChunk* const chunk;
    // The view whose pushes are taken; null after Abandon.
    std::shared_ptr<const PolicyView> view ABSL_GUARDED_BY(chunk->mutex);
    UnconfirmedReplies unconfirmed ABSL_GUARDED_BY(chunk->mutex);
  };

  // Constant after construction.
  ShardCounters* const counters_;
  const ChunkObservers observers_;

  std::deque<History> histories_;  // parallel to the store's chunks
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_ASYNC_POLICY_H_
