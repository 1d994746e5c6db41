#ifndef EVENSHARD_TOOLS_LAUNCH_INTERRUPTIBLE_OUTPUT_H_
#define EVENSHARD_TOOLS_LAUNCH_INTERRUPTIBLE_OUTPUT_H_

#include <signal.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace evenshard {

// Writes to a pipe or terminal whose reader may have stopped for a while (Ctrl-S, a pager), and
// waits for it, but not while a signal is pending: the caller has to act on that. From then on it
// leaves out what there is no room for. Not thread-safe.
class InterruptibleOutput {
 public:
  // `signals` must be blocked. `descriptor` stays the caller's.
  InterruptibleOutput(int descriptor, const sigset_t& signals);
  ~InterruptibleOutput();
  InterruptibleOutput(const InterruptibleOutput&) = delete;
  InterruptibleOutput& operator=(const InterruptibleOutput&) = delete;

  // Errors are those of write(2), and leave the text out: of a broken pipe SIGPIPE tells.
  absl::Status Write(absl::string_view text);

 private:
  bool AwaitRoom();

  const int descriptor_;
  const int signals_;  // readable while a signal is pending
  bool was_interrupted_ = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_INTERRUPTIBLE_OUTPUT_H_
