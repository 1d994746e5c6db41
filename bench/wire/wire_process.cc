#include "bench/wire/wire_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace evenshard {
namespace {

// No step of the largest layout takes this long, even on a slow machine.
constexpr int kPatienceMilliseconds = 300 * 1000;

// The time that an idle process may take to end.
constexpr int kEndMilliseconds = 10 * 1000;

sigset_t InterruptSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// Moves the first line of `received` to `line`. Returns false if there is no complete line.
bool TakeLine(std::string* received, std::string* line) {
  const size_t end = received->find('\n');
  if (end == std::string::npos) return false;
  *line = received->substr(0, end);
  received->erase(0, end + 1);
  return true;
}

// Appends what can be read. Returns false at the end of the input.
bool ReadMore(int fd, std::string* received) {
  char buffer[4096];
  const ssize_t size = read(fd, buffer, sizeof(buffer));
  if (size > 0) received->append(buffer, static_cast<size_t>(size));
  return size > 0 || (size < 0 && errno == EINTR);
}

std::vector<std::string> Words(const std::string& line) {
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

}  // namespace

absl::StatusOr<int64_t> ResidentBytes(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/statm"));
  int64_t pages = 0;
  int64_t resident_pages = 0;
  if (!(file >> pages >> resident_pages)) {
    return absl::NotFoundError(absl::StrCat("process ", pid, " has ended"));
  }
  return resident_pages * sysconf(_SC_PAGESIZE);
}

Interrupts::Interrupts() {
  const sigset_t signals = InterruptSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  fd_ = signalfd(-1, &signals, SFD_CLOEXEC);
}

Interrupts::~Interrupts() { close(fd_); }

absl::StatusOr<std::unique_ptr<WireProcess>> WireProcess::Start(
    const std::string& name, const std::vector<std::string>& arguments,
    const Interrupts* interrupts) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::InternalError(absl::StrCat("/proc/self/exe: ", error.message()));
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);

  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot start ", name));
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    const sigset_t signals = InterruptSignals();
    sigprocmask(SIG_UNBLOCK, &signals, nullptr);
    // The process writes to standard error, because standard output is for the report.
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent &&
        dup2(sockets[1], STDIN_FILENO) >= 0 && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0) {
      execv(program.c_str(), argv.data());
    }
    _exit(1);
  }
  const int fork_error = errno;
  close(sockets[1]);
  if (pid < 0) {
    close(sockets[0]);
    return absl::ErrnoToStatus(fork_error, absl::StrCat("cannot start ", name));
  }
  return std::unique_ptr<WireProcess>(new WireProcess(name, pid, sockets[0], interrupts));
}

WireProcess::~WireProcess() {
  shutdown(control_, SHUT_WR);  // the process ends at its next wait for a command
  pollfd fds[] = {{control_, POLLIN, 0}, {interrupts_->fd(), POLLIN, 0}};
  poll(fds, 2, kEndMilliseconds);
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  close(control_);
}

absl::Status WireProcess::Send(absl::string_view command) {
  const std::string line = absl::StrCat(command, "\n");
  if (send(control_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat(name_, " takes no commands"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> WireProcess::Expect(absl::string_view word) {
  std::string line;
  while (!TakeLine(&received_, &line)) {
    pollfd fds[] = {{control_, POLLIN, 0}, {interrupts_->fd(), POLLIN, 0}};
    const int ready = poll(fds, 2, kPatienceMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return absl::DeadlineExceededError(
          absl::StrCat(name_, " has not answered for ", kPatienceMilliseconds / 1000, " s"));
    }
    if (fds[1].revents != 0) return absl::CancelledError("interrupted");
    if (!ReadMore(control_, &received_)) {
      return absl::InternalError(absl::StrCat(name_, " has ended; its reason is above"));
    }
  }
  std::vector<std::string> words = Words(line);
  if (words.empty() || words[0] != word) {
    return absl::InternalError(
        absl::StrCat(name_, " answered \"", line, "\" instead of \"", word, "\""));
  }
  words.erase(words.begin());
  return words;
}

absl::StatusOr<absl::Duration> WireProcess::CpuTime() const {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return absl::InternalError(absl::StrCat(name_, " has ended; its reason is above"));
  }
  return absl::DurationFromTimespec(time);
}

std::vector<std::string> WireControl::NextCommand() {
  std::string line;
  while (!TakeLine(&received_, &line)) {
    if (!ReadMore(STDIN_FILENO, &received_)) return {};
  }
  return Words(line);
}

void WireControl::Answer(absl::string_view line) {
  const std::string whole = absl::StrCat(line, "\n");
  // If the benchmark has ended it needs no answer, and NextCommand will notice.
  (void)!write(STDIN_FILENO, whole.data(), whole.size());
}

}  // namespace evenshard
