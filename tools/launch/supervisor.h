#ifndef PS_TOOLS_LAUNCH_SUPERVISOR_H_
#define PS_TOOLS_LAUNCH_SUPERVISOR_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tools/launch/labelled_output.h"

namespace ps {

struct ProcessSpec {
  std::string label;                 // "worker 3"
  std::vector<std::string> command;  // the program and its arguments
  int terminal_columns = 0;          // above 0: it writes to a terminal of that width
  // In a stage after a failure: what is said when it has succeeded, as "the model is in FILE".
  std::string result = {};
};

// Processes that run at once; over when all have ended with exit code 0.
struct Stage {
  std::vector<ProcessSpec> processes;
  bool after_failure = false;  // run it also where a process of an earlier stage failed, or a
                               // signal ended the run
};

// What to run: the stages one after the other. A service runs until all stages are done and then
// ends on SIGTERM.
struct SupervisedRun {
  std::vector<ProcessSpec> services;
  std::vector<Stage> stages;
  // From SIGTERM, or the forwarded signal, to SIGKILL; and what all stages have together that
  // follow a signal to this process.
  absl::Duration grace;
};

// Runs it to the end, with all output and its own messages on `output`. When a process of a
// stage fails, the others of the stage are ended, and only stages `after_failure` follow; when a
// service ends before its time, all are ended. SIGINT, SIGTERM and
// SIGHUP of this process are passed on and end the run: at once where no stage `after_failure` is
// left, otherwise first the stage under way, then, after those, the services. A second one ends it
// with SIGKILL. When it returns, every process has ended and is reaped; when this process is
// killed, the kernel kills them.
//
// Returns 0 when all went well; otherwise the exit code of the process that failed
// first (128 + n where signal n killed it, 1 for a service that ended too early without
// an error or a program that cannot be started), or 128 + n after signal n to this
// process. Of failures close together one that was killed counts as the first.
//
// Once in a process, and from its only thread: it takes over the signals named above and
// SIGCHLD for good.
int Supervise(const SupervisedRun& run, LabelledOutput* output);

}  // namespace ps

#endif  // PS_TOOLS_LAUNCH_SUPERVISOR_H_
