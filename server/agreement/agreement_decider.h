#ifndef EVENSHARD_SERVER_AGREEMENT_AGREEMENT_DECIDER_H_
#define EVENSHARD_SERVER_AGREEMENT_AGREEMENT_DECIDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/placement/planned_config.h"
#include "proto/agreement.pb.h"
#include "proto/view.pb.h"

namespace evenshard {

// Decides, at the primary of slot 0, on what concerns all slots in each iteration, and answers each
// of them with the result: NormDecider and QuorumDecider. Thread-safe.
//
// There is one result for each iteration, although the decider may be another process in each view.
//   - The result is used by a slot in the view only in which it was decided, and from then on the
//     slot knows it, and so does whoever takes the slot over (ReplicaChunk).
//   - Each slot reports in each view. One that knows a result reports it, and the decider takes it
//     over; only if all slots ask for the result, so that none knows it, does it decide.
// So it need not be stored: a decider that dies before it has answered anybody leaves no trace. Of
// older results only the latest matters: a slot does not ask for that of an iteration before it has
// made all updates of the one before, and before its replica has confirmed them.
class AgreementDecider {
 public:
  using Answer = std::function<void(const absl::StatusOr<AgreementAnswer>& answer)>;

  virtual ~AgreementDecider() = default;

  // Adopts a view. What was asked in earlier ones is dropped, and their calls end with UNAVAILABLE.
  void Adopt(const View& view);

  // Takes a report, and calls `answer` once, in this call or a later one, without a lock. Errors:
  //   UNAVAILABLE: the report is of another view, the slot has reported again meanwhile, or that of
  //     End: try again.
  //   INVALID_ARGUMENT: the report cannot be one of this run's.
  //   INTERNAL, of the kind RUN_FAILED: the slot asks for an earlier result than the latest, so
  //     that it, or the slot that claims the latest, is broken or lies.
  //   Those of the result, of the kind RUN_FAILED.
  void Take(const AgreementReport& report, Answer answer);

  // Warns of slots that have not asked for half of limits.exchange_seconds for what others wait
  // for. Workers, which wait as well, give up after the whole time. Called every 100 ms or so.
  void TellMissing(absl::Time now);

  // Ends all calls, the present ones and later ones, with `reason`.
  void End(const absl::Status& reason);

 protected:
  // `takes_part`: by slot, whether it has something to ask. `what`: is decided, for errors. The
  // config must outlive the decider.
  AgreementDecider(const PlannedConfig* config, const std::vector<bool>& takes_part,
                   absl::string_view what);

  // Decides once more on what all slots ask for.
  void DecideAgain();

  // Errors: INVALID_ARGUMENT if the report cannot be one of this run's.
  virtual absl::Status CheckContent(const AgreementReport& report) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_) = 0;
  // Takes over what a slot reports. Returns the iteration whose result it asks for, if any.
  virtual std::optional<uint64_t> TakeContent(const AgreementReport& report)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Called while all slots ask for the result of an iteration that is not known. It may stay
  // unknown.
  virtual void Decide(uint64_t iteration) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // A view was adopted: what slots have asked so far is dropped.
  virtual void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // The iteration of the latest result that is known, and the answer to who asks for it.
  virtual std::optional<uint64_t> latest_iteration() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) = 0;
  virtual absl::StatusOr<AgreementAnswer> Known() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) = 0;

  bool takes_part(size_t slot) const { return takes_part_[slot]; }

  const PlannedConfig& config_;
  mutable absl::Mutex mutex_;

 private:
  struct Slot {
    uint32_t process = 0;           // the primary's
    std::optional<uint64_t> asked;  // for the result of this iteration, in the present view
    uint64_t number = 0;            // of its latest report
    Answer answer;                  // of the call that waits, or null
  };
  struct Due {
    Answer answer;
    absl::StatusOr<AgreementAnswer> result;
  };

  absl::Status Check(const AgreementReport& report) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // "slot 2 (ps 5)"
  std::string NameOf(size_t slot) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<AgreementAnswer> ResultFor(size_t slot) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The iteration that all slots ask for.
  std::optional<uint64_t> AskedByAll() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // Decides if that is due, and moves the calls that can be answered to `due`.
  void DecideAndAnswer(std::vector<Due>& due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndCalls(const absl::Status& reason, std::vector<Due>& due)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Send(const std::vector<Due>& due);

  const std::vector<bool> takes_part_;
  const absl::string_view what_;
  uint64_t view_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Slot> slots_ ABSL_GUARDED_BY(mutex_);
  // The slot that has reported the latest result; absent if it was decided here.
  std::optional<uint32_t> claimed_by_ ABSL_GUARDED_BY(mutex_);
  // The earliest iteration whose result a call waits for, and since when TellMissing has seen that.
  std::optional<uint64_t> awaited_ ABSL_GUARDED_BY(mutex_);
  absl::Time awaited_since_ ABSL_GUARDED_BY(mutex_);
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_AGREEMENT_AGREEMENT_DECIDER_H_
