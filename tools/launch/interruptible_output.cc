#include "tools/launch/interruptible_output.h"

#include <limits.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>

namespace evenshard {

InterruptibleOutput::InterruptibleOutput(int descriptor, const sigset_t& signals)
    : descriptor_(descriptor), signals_(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)) {}

InterruptibleOutput::~InterruptibleOutput() { close(signals_); }

absl::Status InterruptibleOutput::Write(absl::string_view text) {
  while (!text.empty() && AwaitRoom()) {
    // As much as a pipe with room takes at once.
    const absl::string_view part = text.substr(0, PIPE_BUF);
    const ssize_t written = write(descriptor_, part.data(), part.size());
    if (written > 0) text.remove_prefix(written);
    if (written < 0 && errno != EINTR && errno != EAGAIN) {
      return absl::ErrnoToStatus(errno, "cannot write to standard output");
    }
  }
  return absl::OkStatus();
}

bool InterruptibleOutput::AwaitRoom() {
  while (true) {
    pollfd fds[] = {{descriptor_, POLLOUT, 0}, {signals_, POLLIN, 0}};
    const int ready = poll(fds, 2, was_interrupted_ ? 0 : -1);
    if (ready < 0) continue;  // interrupted by a signal that is not blocked
    if (fds[0].revents != 0) return true;
    was_interrupted_ = true;
    return false;
  }
}

}  // namespace evenshard
