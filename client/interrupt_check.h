#ifndef EVENSHARD_CLIENT_INTERRUPT_CHECK_H_
#define EVENSHARD_CLIENT_INTERRUPT_CHECK_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace evenshard {

// See evenshard_set_interrupt_check. Thread-safe.
void SetInterruptCheck(int (*check)());

// Calls the check, if one is set, in this thread. Returns whether the waiting call should end.
bool AskInterruptCheck();

// Runs a call that may block. If a check is set, the call runs in a thread of its own, and this
// thread calls the check meanwhile, and `interrupt` when the call should end. Returns what the call
// returns.
absl::Status RunAside(absl::FunctionRef<absl::Status()> call, absl::FunctionRef<void()> interrupt);

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_INTERRUPT_CHECK_H_
