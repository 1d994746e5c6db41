#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_CALLS_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_CALLS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// When a worker retries a call to a slot other than Exchange, because the slot moves or cannot be
// reached for a moment. Each object follows one call; `clock` must outlive it. The caller makes the
// call, passes its result to Ended, and retries at the time that Ended returns, if any. Not
// thread-safe.

// The pull of a slot's chunks. The caller waits each time until the slot is connected.
class SlotPull {
 public:
  // No retry begins after `limit`; zero allows none.
  SlotPull(const Clock* clock, absl::Duration limit)
      : clock_(*clock), deadline_(clock->Now() + limit) {}

  // Errors: `pulled`, if there is no retry.
  absl::StatusOr<std::optional<absl::Time>> Ended(const absl::Status& pulled);

 private:
  const Clock& clock_;
  const absl::Time deadline_;
};

// The call that says that a worker leaves.
class SlotLeave {
 public:
  // `retries`: until `timeout`, as long as the slot cannot be reached.
  SlotLeave(const Clock* clock, bool retries, absl::Duration timeout)
      : clock_(*clock), retries_(retries), timeout_(timeout), deadline_(clock->Now() + timeout) {}

  absl::Duration timeout() const { return timeout_; }
  absl::Duration left() const { return deadline_ - clock_.Now(); }
  // Errors: `told`, if there is no retry. Once an answer may have been lost, a slot that no longer
  // knows the worker has been told.
  absl::StatusOr<std::optional<absl::Time>> Ended(const absl::Status& told);

 private:
  const Clock& clock_;
  const bool retries_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  bool may_have_left_ = false;  // an answer may have been lost
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_CALLS_H_
