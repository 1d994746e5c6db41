#ifndef EVENSHARD_SERVER_UPDATE_NORM_DECIDER_H_
#define EVENSHARD_SERVER_UPDATE_NORM_DECIDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/placement/planned_config.h"
#include "proto/norm_agreement.pb.h"
#include "server/store/square_sum.h"

namespace evenshard {

// Decides on the norm of each iteration's mean gradient, at the primary of slot 0: it adds up the
// parts of all slots and answers each with the result. Thread-safe.
//
// There is one result for each iteration, although the decider may be another process in each view.
//   - The result is used by a slot in the view only in which it was decided, and from then on the
//     slot knows it, and so does whoever takes the slot over (ReplicaChunk.squared_norm).
//   - Each slot reports in each view. One that knows a result reports it, and the decider takes it
//     over; only if all slots report a part, so that none knows one, does it add the parts up.
// So it need not be stored: a decider that dies before it has answered anybody leaves no trace. Of
// older results only the latest matters: a slot has no part of an iteration before it has made all
// updates of the one before, and before its replica has confirmed them.
class NormDecider {
 public:
  using Answer = std::function<void(const absl::StatusOr<NormAnswer>& answer)>;

  // REQUIRES: the config, which must outlive this, clips the mean.
  explicit NormDecider(const PlannedConfig* config);

  // Adopts a view. Parts of earlier ones are dropped, and their calls end with UNAVAILABLE.
  void Adopt(uint64_t view);

  // Takes a report, and calls `answer` once, in this call or a later one, without a lock. Errors:
  //   UNAVAILABLE: the report is of another view, the slot has reported again meanwhile, or that of
  //     End: try again.
  //   INVALID_ARGUMENT: the report cannot be one of this run's.
  //   OUT_OF_RANGE, of the kind RUN_FAILED: the norm is too large to be told.
  void Take(const NormReport& report, Answer answer);

  // Ends all calls, the present ones and later ones, with `reason`.
  void End(const absl::Status& reason);

 private:
  struct Slot {
    bool takes_part = false;
    uint64_t iteration = 0;         // of the part
    std::optional<SquareSum> part;  // in the present view
    Answer answer;                  // of the call that waits, or null
  };
  struct Due {
    Answer answer;
    absl::StatusOr<NormAnswer> result;
  };

  absl::Status Check(const NormReport& report) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Adds the parts up if all slots have reported theirs of one iteration.
  void Decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the calls that can be answered to `due`.
  void AnswerKnown(std::vector<Due>& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndCalls(const absl::Status& reason, std::vector<Due>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Send(const std::vector<Due>& due);

  const PlannedConfig& config_;
  const SquareRule rule_;

  mutable absl::Mutex mutex_;
  uint64_t view_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  std::optional<SquaredNorm> latest_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_UPDATE_NORM_DECIDER_H_
