#ifndef EVENSHARD_CLIENT_INTERRUPT_CHECK_H_
#define EVENSHARD_CLIENT_INTERRUPT_CHECK_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace evenshard {

// See evenshard_set_interrupt_check. Thread-safe.
void SetInterruptCheck(int (*check)());

// Asks the check, if there is one, in this thread. Returns whether the call that waits is to end.
bool AskInterruptCheck();

// Runs a call that may block. If there is a check, the call runs in a thread of its own, and this
// thread asks the check meanwhile and calls `interrupt` if the call is to end. Returns what the
// call returns.
absl::Status RunAside(absl::FunctionRef<absl::Status()> call, absl::FunctionRef<void()> interrupt);

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_INTERRUPT_CHECK_H_
