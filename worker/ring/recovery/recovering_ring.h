#ifndef EVENSHARD_WORKER_RING_RECOVERY_RECOVERING_RING_H_
#define EVENSHARD_WORKER_RING_RECOVERY_RECOVERING_RING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/control/view/view_link.h"
#include "proto/view.pb.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/ring/grpc/ring_exchange.h"
#include "worker/ring/recovery/ring_checkpointer.h"
#include "worker/ring/recovery/ring_views.h"

namespace evenshard {

// A worker's exchange in a ring of a run with `recovery`: one RingExchange after another, each of a
// generation of the run.
//
//   1. Connect waits for a view with a ring of which all workers are there, and connects.
//   2. When a worker is lost, calls of all others fail (ring_end.cc). The coordinator begins a
//      generation, from a checkpoint or the initial parameters, with the worker's replacement or
//      without it (common/control/view/ring_members.h).
//   3. Then went_back() is true, and Resume makes the ring of that generation.
//
// If no generation follows a failure, or the failure is not the loss of a worker, it ends the run,
// and this worker tells the coordinator why. Each Begin may cut a checkpoint (RingCheckpointer).
//
// Not thread-safe, except for the methods that say otherwise.
class RecoveringRing final : public TrainingExchange {
 public:
  struct Options {
    RingExchange::Options ring;  // without its start
    ViewLink* views = nullptr;   // must outlive the exchange; is started
  };

  // Errors: those of RingViews::Await and, unless the run goes back, of RingExchange::Connect.
  static absl::StatusOr<std::unique_ptr<RecoveringRing>> Connect(const Options& options);
  ~RecoveringRing() override;

  int64_t next_iteration() const override { return ring_->next_iteration(); }
  uint64_t view_number() const override { return view_.number(); }
  std::vector<WorkerSet> worker_sets() const override {
    return {view_.worker_set().begin(), view_.worker_set().end()};
  }
  bool went_back() const override { return went_back_; }
  absl::StatusOr<int64_t> Resume() override;

  // As RingExchange's. If the run goes back, they fail with ABORTED, of the kind WENT_BACK.
  absl::Status Pull(absl::Span<float> parameters) override;
  absl::Status PushPull(int64_t iteration, absl::Span<const float> gradients,
                        absl::Span<float> parameters) override;
  absl::Status Begin(int64_t iteration, absl::Span<const float> gradients,
                     absl::Span<float> parameters) override;
  absl::Status Begin(ExchangeKind kind, absl::Span<const float> pushed,
                     absl::Span<float> parameters) override;
  absl::Status Push(int layer) override { return Checked(ring_->Push(layer)); }
  void Flush() override {}
  absl::Status AwaitLayer(int layer) override { return Checked(ring_->AwaitLayer(layer)); }
  absl::Status AwaitAll() override { return Checked(ring_->AwaitAll()); }
  bool is_begun() const override { return ring_->is_begun(); }
  bool is_behind() const override { return false; }

  // The others have gone back as far as this worker, and keep their own.
  absl::Status ReceiveState(const WorkerState::Place& place) override {
    return ring_->ReceiveState(place);
  }
  void OfferState(WorkerState::Make make, absl::FunctionRef<void()> meanwhile) override {}
  absl::Status Report(const WorkerUsage& usage, const std::stop_token& stop) override;

  // If `outcome` is OK, cuts the last checkpoint, and waits until all workers have come to the end
  // or the run goes back.
  absl::Status Leave(const absl::Status& outcome) override;
  // May be called from any thread.
  absl::Status SendLeave(const absl::Status& outcome, absl::Duration timeout) override;

  Traffic traffic() const override;

 private:
  explicit RecoveringRing(const Options& options);

  // The present ring, or null between two. May be called from any thread.
  std::shared_ptr<RingExchange> ring() const {
    absl::MutexLock lock(&mutex_);
    return ring_;
  }
  // Makes the ring of the latest generation, or of a later one if that fails because of a loss.
  absl::Status Form();
  // Makes `options` those of the ring of `view`.
  static void SetStart(const View& view, RingExchange::Options* options);
  // Ends the ring, of which `why` tells the others.
  void Dissolve(const absl::Status& why);
  // Returns an OK status as it is. After a failure waits for what becomes of the run.
  absl::Status Checked(absl::Status status);
  // Whether a generation follows the failure of a ring.
  bool IsFollowed(const absl::Status& failure);
  // Cuts a checkpoint if one is due before the next iteration, or if the last one is over and there
  // was one.
  void CutIfDue(bool is_last = false);

  const Options options_;
  RealStorage storage_;
  RingViews views_;

  std::optional<std::stop_callback<std::function<void()>>> stopped_;
  View view_;  // in which the ring was formed
  int64_t first_iteration_ = 0;
  bool went_back_ = false;
  bool has_left_ = false;  // the present ring
  Traffic former_;         // of earlier rings

  mutable absl::Mutex mutex_;
  // Changed by the training thread only, which may read it without the lock.
  std::shared_ptr<RingExchange> ring_;
  std::unique_ptr<RingCheckpointer> checkpointer_;  // null without checkpoints; refers to ring_
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_RECOVERY_RECOVERING_RING_H_
