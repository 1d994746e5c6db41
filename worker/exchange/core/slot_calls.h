#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_CALLS_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_CALLS_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// When a worker's calls to a slot other than Exchange are made again, because the slot moves or
// cannot be reached for a moment. Each object follows one call; `clock` must outlive it. The caller
// makes the call, tells how it has ended, and makes it again at the time that is returned, if any.
// Not thread-safe.

// The pull of a slot's chunks. The caller waits each time until the slot is connected.
class SlotPull {
 public:
  // `limit`: no call begins later; zero if there is only one.
  SlotPull(const Clock* clock, absl::Duration limit)
      : clock_(*clock), deadline_(clock->Now() + limit) {}

  // Errors: `pulled`, if the call is not made again.
  absl::StatusOr<std::optional<absl::Time>> Ended(const absl::Status& pulled);

 private:
  const Clock& clock_;
  const absl::Time deadline_;
};

// The news that a worker leaves.
class SlotLeave {
 public:
  // `tries_again`: as long as the slot cannot be reached, until `timeout`.
  SlotLeave(const Clock* clock, bool tries_again, absl::Duration timeout)
      : clock_(*clock),
        tries_again_(tries_again),
        timeout_(timeout),
        deadline_(clock->Now() + timeout) {}

  absl::Duration timeout() const { return timeout_; }
  absl::Duration left() const { return deadline_ - clock_.Now(); }
  // Errors: `told`, if the call is not made again. A slot that does not know the worker any more
  // after an answer may have been lost counts as told.
  absl::StatusOr<std::optional<absl::Time>> Ended(const absl::Status& told);

 private:
  const Clock& clock_;
  const bool tries_again_;
  const absl::Duration timeout_;
  const absl::Time deadline_;
  bool may_have_left_ = false;  // an answer may have been lost
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_SLOT_CALLS_H_
