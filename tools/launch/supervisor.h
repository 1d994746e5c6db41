#ifndef EVENSHARD_TOOLS_LAUNCH_SUPERVISOR_H_
#define EVENSHARD_TOOLS_LAUNCH_SUPERVISOR_H_

#include <signal.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tools/launch/labelled_output.h"
#include "tools/launch/recovery_host.h"

namespace evenshard {

struct ProcessSpec {
  std::string label;                          // "worker 3"
  std::vector<std::string> command;           // the program and its arguments
  std::vector<std::string> environment = {};  // "NAME=value", on top of this process's
  int terminal_columns = 0;  // the width of the terminal it writes to; 0: it writes to a pipe
  bool has_console = false;  // as in child_process.h
  // The message that is printed when the process has succeeded, as "the model is in FILE". Only for
  // stages that run after a failure.
  std::string result = {};
  // Which place of the run the process takes. Only with SupervisedRun::recovery.
  std::optional<ProcessRole> role = {};
  // Called when the process of a stage has ended with exit code 0: an error is its failure. May
  // block for some seconds.
  std::function<absl::Status()> check = [] { return absl::OkStatus(); };
};

// Processes that run at the same time. A stage is done when all have succeeded.
struct Stage {
  std::vector<ProcessSpec> processes;
  // Whether the stage also runs if an earlier stage failed or a signal ended the run.
  bool after_failure = false;
};

// The stages run one after another. The services run until all stages are done and are then ended
// by SIGTERM.
struct SupervisedRun {
  std::vector<ProcessSpec> services;
  std::vector<Stage> stages;
  // The time from SIGTERM, or the forwarded signal, to SIGKILL. It is also the time for all stages
  // together that follow a signal to this process.
  absl::Duration grace;
  // Decides what becomes of the run when a process with a role ends. Absent: the run fails. A
  // process that fails early too often (restart_policy.h), or whose usage or config is wrong, fails
  // the run in any case.
  RecoveryHost* recovery = nullptr;
  // How often each worker may be started again. Absent: as often as `recovery` says.
  std::optional<int> max_restarts = {};
};

// The exit code of a worker that has ended because another has failed, EX_TEMPFAIL of sysexits.h.
// It is never taken for the cause.
inline constexpr int kFollowerExit = 75;

// Blocks the signals that Supervise takes over, so that threads started from now on do not get
// them. Returns those that end the run. REQUIRES: as Supervise.
sigset_t BlockSupervisedSignals();

// Runs all services and stages to the end. Their output and the supervisor's own messages go to
// `output`. The last message says whether the run succeeded, or why not.
//
// With `recovery`, processes are started again as it says, and a process keeps its label then.
// Otherwise, and when that has failed: if a process of a stage fails, the others of the stage are
// ended, and only stages with `after_failure` follow. If a service ends early, everything is ended.
// SIGINT, SIGTERM and SIGHUP to this process are forwarded and end the run: all processes at once
// if no stage with `after_failure` is left; otherwise the current stage first, and the services
// after the remaining stages. A second signal ends the run with SIGKILL. When Supervise returns,
// every process has ended and is reaped. If this process is killed, the kernel kills its children.
//
// Returns 0 if all processes succeeded. Otherwise returns the exit code of the process that failed
// first: 128 + n if signal n killed it, 1 if it is a service that ended early without an error or a
// program that cannot be started. Returns 128 + n after signal n to this process. If several
// processes fail at almost the same time, one that a signal killed counts as the first, and one
// that followed another (kFollowerExit) as the last.
//
// REQUIRES: called once in a process, from its only thread. It takes over the signals named above
// and SIGCHLD permanently.
int Supervise(const SupervisedRun& run, LabelledOutput* output);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_SUPERVISOR_H_
