#ifndef PS_TOOLS_LAUNCH_CHILD_PROCESS_H_
#define PS_TOOLS_LAUNCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ps {

// A started child process.
struct ChildProcess {
  pid_t pid = -1;   // and its process group
  int output = -1;  // to read its standard output and error from; does not block
};

// Starts command[0] with the arguments that follow, with no standard input, no blocked
// signals, and as the leader of a process group of its own. The kernel kills it when the
// calling process ends, however that ends. To be called from the thread that lives as
// long as the process.
//
// Its output goes through a pipe or, where `terminal_columns` is above 0, through a
// pseudo-terminal of that width, on which the program may draw; reading from that ends
// with the error EIO.
//
// Errors: what execv() says of the program; no more file descriptors or processes.
absl::StatusOr<ChildProcess> StartChild(const std::vector<std::string>& command,
                                        int terminal_columns = 0);

}  // namespace ps

#endif  // PS_TOOLS_LAUNCH_CHILD_PROCESS_H_
