#ifndef EVENSHARD_SERVER_RECOVERY_AGREEMENT_REPORTER_H_
#define EVENSHARD_SERVER_RECOVERY_AGREEMENT_REPORTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/agreement.pb.h"
#include "proto/view.pb.h"
#include "server/agreement/agreement_decider.h"
#include "server/agreement/agreement_subject.h"

namespace evenshard {

// Calls a decider, AgreementDecider, wherever it is. Thread-safe.
class AgreementTransport {
 public:
  virtual ~AgreementTransport() = default;

  // Brings a report to the primary of slot 0. Does not block. Calls `answer` once, from any thread,
  // in this call or later. Errors: those of AgreementDecider::Take; UNAVAILABLE if the process
  // cannot be reached or is not that primary; DEADLINE_EXCEEDED if it has had the call for
  // limits.exchange_seconds without an answer: call it again.
  virtual void Report(const ProcessId& decider, const AgreementReport& report,
                      AgreementDecider::Answer answer) = 0;
};

// Reports to the decider what a slot asks for in each iteration, and what it knows in each view,
// until it has an answer. Thread-safe. Lock order: this one's, then the subject's.
class AgreementReporter : public std::enable_shared_from_this<AgreementReporter> {
 public:
  struct Options {
    int slot = 0;
    AgreementSubject* subject = nullptr;  // must outlive this, like every pointer here
    AgreementTransport* transport = nullptr;
    const Clock* clock = nullptr;
    // How long the decider may be unreachable (limits.exchange_seconds).
    absl::Duration patience;
    // Called under the lock: what was asked for is known. Must not call back.
    std::function<void()> on_known;
    // Called without a lock: the run must fail.
    std::function<void(const absl::Status& failure)> on_failure;
  };

  explicit AgreementReporter(Options options) : options_(std::move(options)) {}

  // Follows a view: its number, and the primary of its slot 0, if it has one. Answers of earlier
  // views count no more once this returns, so that what it reports in this one is all it knows.
  void Adopt(uint64_t view, const std::optional<ProcessId>& decider);

  // Reports, because there is something new.
  void Report();

  // Reports again where that has failed. Called every 100 ms or so.
  void Tick();

  // No report and no callback follows once this returns.
  void Stop();

 private:
  void Answered(uint64_t call, const absl::StatusOr<AgreementAnswer>& answer);
  void Fail(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;

  absl::Mutex mutex_;
  uint64_t view_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<ProcessId> decider_ ABSL_GUARDED_BY(mutex_);
  uint64_t call_ ABSL_GUARDED_BY(mutex_) = 0;                 // the number of the latest call
  std::optional<uint64_t> reported_ ABSL_GUARDED_BY(mutex_);  // what it asked for
  bool must_retry_ ABSL_GUARDED_BY(mutex_) = false;           // it has failed
  std::optional<absl::Time> unreachable_since_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);  // to be told by Tick
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RECOVERY_AGREEMENT_REPORTER_H_
