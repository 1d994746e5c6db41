#ifndef EVENSHARD_BENCH_WIRE_WIRE_PROCESS_H_
#define EVENSHARD_BENCH_WIRE_WIRE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace evenshard {

// Returns the bytes of a process's memory that are in RAM. Errors: NOT_FOUND if it has ended.
absl::StatusOr<int64_t> ResidentBytes(pid_t pid);

// Blocks SIGINT and SIGTERM, so that the benchmark can first end the processes that it started.
// `fd` becomes readable when one of these signals has arrived. Create one instance, before any
// thread or process.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

// One process of the system under test, which runs this program with other flags. Its standard
// input is a socket, over which it receives commands and sends answers, one line each. The
// destructor asks the process to end, kills it if it does not, and reaps it. The kernel kills it if
// the thread that started it dies. Used by that thread only.
class WireProcess {
 public:
  // `name` appears in errors, as in "worker 0 of ps". `interrupts` must outlive the process.
  static absl::StatusOr<std::unique_ptr<WireProcess>> Start(
      const std::string& name, const std::vector<std::string>& arguments,
      const Interrupts* interrupts);
  ~WireProcess();
  WireProcess(const WireProcess&) = delete;
  WireProcess& operator=(const WireProcess&) = delete;

  absl::Status Send(absl::string_view command);

  // Waits for the next line, which must begin with `word`, and returns the words after it.
  // Errors: CANCELLED after SIGINT or SIGTERM; INTERNAL if the process has ended or answered
  // something else; DEADLINE_EXCEEDED after 300 s.
  absl::StatusOr<std::vector<std::string>> Expect(absl::string_view word);

  // The user and system time that the process has used so far.
  absl::StatusOr<absl::Duration> CpuTime() const;
  absl::StatusOr<int64_t> Resident() const { return ResidentBytes(pid_); }

 private:
  WireProcess(std::string name, pid_t pid, int control, const Interrupts* interrupts)
      : name_(std::move(name)), pid_(pid), control_(control), interrupts_(interrupts) {}

  const std::string name_;
  const pid_t pid_;
  const int control_;
  const Interrupts* const interrupts_;
  std::string received_;  // bytes after the last complete line
};

// The other end of the socket, in the process that was started. Used by one thread.
class WireControl {
 public:
  // Waits for the next command and returns its words, or no words after the last command.
  std::vector<std::string> NextCommand();
  void Answer(absl::string_view line);

 private:
  std::string received_;
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_WIRE_PROCESS_H_
