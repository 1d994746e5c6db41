#ifndef EVENSHARD_CLIENT_INTERRUPT_CHECK_H_
#define EVENSHARD_CLIENT_INTERRUPT_CHECK_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace evenshard {

// See evenshard_set_interrupt_check. Thread-safe.
void SetInterruptCheck(int (*check)());

// Whether a check is set.
bool HasInterruptCheck();
// Calls the check, if one is set, in this thread. Returns whether the waiting call should end.
bool AskInterruptCheck();

// Runs a call that may block in a thread of its own, while this thread calls `meanwhile` about
// every 100 ms. Returns what the call returns.
absl::Status RunAside(absl::FunctionRef<absl::Status()> call, absl::FunctionRef<void()> meanwhile);

// Runs a call that may block, in this thread if no check is set, and otherwise aside: then
// `interrupt` is called when the call should end.
absl::Status RunInterruptibly(absl::FunctionRef<absl::Status()> call,
                              absl::FunctionRef<void()> interrupt);

}  // namespace evenshard

#endif  // EVENSHARD_CLIENT_INTERRUPT_CHECK_H_
