#include "tools/launch/child_process.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace evenshard {
namespace {

// Gives the child its standard input, output and error. Without `output_fd` it keeps the parent's.
bool TakeOutput(int output_fd) {
  if (output_fd < 0) return setsid() >= 0;
  setpgid(0, 0);
  const int input_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return input_fd >= 0 && dup2(input_fd, STDIN_FILENO) >= 0 &&
         dup2(output_fd, STDOUT_FILENO) >= 0 && dup2(output_fd, STDERR_FILENO) >= 0;
}

// Turns the child into the program, or sends errno to `error_fd`.
[[noreturn]] void Become(char* const* argv, char* const* environment, pid_t parent, int output_fd,
                         int error_fd) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (TakeOutput(output_fd) && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0) {
    // If the parent ended before prctl(), the kernel sends no signal.
    if (getppid() != parent) _exit(1);
    execvpe(argv[0], argv, environment);
  }
  const int error = errno;
  (void)!write(error_fd, &error, sizeof(error));
  _exit(1);
}

// Returns the strings as C has them, with a null at the end.
std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Opens a pair of descriptors: the child writes to fds[1], and the parent reads from fds[0].
bool OpenOutput(int terminal_columns, int fds[2]) {
  if (terminal_columns == 0) return pipe2(fds, O_CLOEXEC) == 0;
  termios raw = {};
  cfmakeraw(&raw);
  winsize size = {};
  size.ws_row = 1;
  size.ws_col = static_cast<unsigned short>(terminal_columns);
  if (openpty(&fds[0], &fds[1], nullptr, &raw, &size) != 0) return false;
  fcntl(fds[0], F_SETFD, FD_CLOEXEC);
  fcntl(fds[1], F_SETFD, FD_CLOEXEC);
  return true;
}

// "RANK" of "RANK=0"
absl::string_view NameOf(absl::string_view variable) {
  return variable.substr(0, variable.find('='));
}

}  // namespace

absl::StatusOr<ChildProcess> StartChild(const std::vector<std::string>& command,
                                        const std::vector<std::string>& environment,
                                        int terminal_columns, bool has_console) {
  const std::vector<char*> argv = Pointers(command);
  std::vector<char*> variables = Pointers(environment);
  variables.pop_back();
  // A process must find one variable of a name: getenv() takes the first, and a shell the last.
  std::set<absl::string_view> replaced;
  for (const std::string& own : environment) replaced.insert(NameOf(own));
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (replaced.count(NameOf(*variable)) == 0) variables.push_back(*variable);
  }
  variables.push_back(nullptr);

  const std::string doing = absl::StrCat("cannot start ", command[0]);
  int output[2] = {-1, -1};
  int error[2];
  const auto close_output = [&](int end) {
    if (output[end] >= 0) close(output[end]);
  };
  if (!has_console && !OpenOutput(terminal_columns, output)) {
    return absl::ErrnoToStatus(errno, doing);
  }
  if (pipe2(error, O_CLOEXEC) != 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, doing);
    close_output(0);
    close_output(1);
    return status;
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(argv.data(), variables.data(), parent, output[1], error[1]);
  int problem = pid < 0 ? errno : 0;
  close_output(1);
  close(error[1]);
  // A successful execvpe() closes the pipe, so the parent reads nothing.
  if (pid > 0 && read(error[0], &problem, sizeof(problem)) > 0) waitpid(pid, nullptr, 0);
  close(error[0]);
  if (problem != 0) {
    close_output(0);
    return absl::ErrnoToStatus(problem, doing);
  }
  if (!has_console) fcntl(output[0], F_SETFL, O_NONBLOCK);
  return ChildProcess{pid, output[0]};
}

}  // namespace evenshard
