#ifndef EVENSHARD_TOOLS_LAUNCH_CHILD_PROCESS_H_
#define EVENSHARD_TOOLS_LAUNCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace evenshard {

// A started child process.
struct ChildProcess {
  pid_t pid = -1;   // also the number of its process group
  int output = -1;  // a non-blocking descriptor for its standard output and error
};

// Starts the program command[0], which is looked for on the PATH unless it has a '/', with the
// arguments that follow. `environment`, as "NAME=value", comes on top of this process's. It blocks
// no signals, and leads a process group of its own. The kernel kills it when the calling thread
// ends, for whatever reason.
//
// Its output goes through a pipe, unless it `has_console`: then it has this process's standard
// input, output and error, in a session of its own, so that it may read from this process's
// terminal, and `output` is -1. If `terminal_columns` is above 0, it goes through a
// pseudo-terminal of that width, on which the program may draw; reading from it ends with the error
// EIO.
//
// Errors: those of execvpe(), pipe(), openpty() and fork().
absl::StatusOr<ChildProcess> StartChild(const std::vector<std::string>& command,
                                        const std::vector<std::string>& environment = {},
                                        int terminal_columns = 0, bool has_console = false);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_CHILD_PROCESS_H_
