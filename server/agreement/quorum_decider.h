#ifndef EVENSHARD_SERVER_AGREEMENT_QUORUM_DECIDER_H_
#define EVENSHARD_SERVER_AGREEMENT_QUORUM_DECIDER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "proto/agreement.pb.h"
#include "server/agreement/agreement_decider.h"

namespace evenshard {

// Decides which workers' gradients count in an iteration under QUORUM. Thread-safe.
//
// A worker has arrived when every slot has all chunks of its push, so that an update waits for
// nobody once its set is decided. When as many as update.quorum have arrived, others may follow for
// a while: update.grace times the average time that the quorum has taken lately since the decision
// before. Those that have arrived by then are the set. If fewer workers than the quorum are left
// that train, all of them are needed; if the whole worker set of an iteration is lost, none is.
//
// Nothing else decides when that time is over: whoever owns the decider calls Tick at due().
class QuorumDecider final : public AgreementDecider {
 public:
  // REQUIRES: the policy is QUORUM. The config and the clock must outlive this.
  QuorumDecider(const PlannedConfig* config, const Clock* clock);

  // Whether a slot has something of which the workers' gradients can count.
  static std::vector<bool> TakesPart(const PlannedConfig& config);

  // Decides if a time of grace is over.
  void Tick() { DecideAgain(); }
  // Blocks until a time of grace is over, which calls Tick again and again, until StopTimer.
  void RunTimer();
  void StopTimer();

 private:
  // What a slot has reported last, in the present view.
  struct Part {
    std::vector<bool> arrived = {};  // by rank
    std::vector<bool> training = {};
  };

  absl::Status CheckContent(const AgreementReport& report) const override
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  std::optional<uint64_t> TakeContent(const AgreementReport& report) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Decide(uint64_t iteration) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<uint64_t> latest_iteration() const override ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<AgreementAnswer> Known() const override ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // Whether a rank has arrived everywhere, and whether nobody says that it has left.
  bool HasArrived(int rank) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  bool IsTraining(int rank) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Fixes the set of an iteration: who has arrived.
  void Fix(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const int workers_;
  const int quorum_;
  const double grace_;

  std::vector<Part> parts_ ABSL_GUARDED_BY(mutex_);  // by slot
  std::optional<QuorumSet> latest_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> decided_at_ ABSL_GUARDED_BY(mutex_);  // here
  std::optional<absl::Time> reached_at_ ABSL_GUARDED_BY(mutex_);  // the quorum, of the next one
  absl::Duration average_ ABSL_GUARDED_BY(mutex_);
  absl::Time due_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // when the grace is over
  bool timer_stops_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_QUORUM_DECIDER_H_
