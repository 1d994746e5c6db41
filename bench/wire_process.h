#ifndef PS_BENCH_WIRE_PROCESS_H_
#define PS_BENCH_WIRE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace ps {

// Memory of a process that is in RAM. Errors: the system's, where it has ended.
absl::StatusOr<int64_t> ResidentBytes(pid_t pid);

// Holds SIGINT and SIGTERM back, so that the benchmark can end what it has started. Made
// once, before anything else; `fd` becomes readable when one of them has come.
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

// One process of the system under test: this program once more, with other flags. It gets
// its commands, and answers them, a line each, through its standard input, which is a
// socket. Asked to end, killed if need be, and reaped in the end; the kernel kills it should
// this process be killed.
// Used by the one thread of this process.
class WireProcess {
 public:
  // `name` is for errors: "worker 0 of ps". `interrupts` must outlive the process.
  static absl::StatusOr<std::unique_ptr<WireProcess>> Start(
      const std::string& name, const std::vector<std::string>& arguments,
      const Interrupts* interrupts);
  ~WireProcess();
  WireProcess(const WireProcess&) = delete;
  WireProcess& operator=(const WireProcess&) = delete;

  absl::Status Send(absl::string_view command);

  // The words of the next line, which must begin with `word`; without it.
  // Errors: CANCELLED after SIGINT or SIGTERM; INTERNAL where the process has ended or said
  // something else; DEADLINE_EXCEEDED.
  absl::StatusOr<std::vector<std::string>> Expect(absl::string_view word);

  // Of the process so far, user and system.
  absl::StatusOr<absl::Duration> CpuTime() const;
  absl::StatusOr<int64_t> Resident() const { return ResidentBytes(pid_); }

 private:
  WireProcess(std::string name, pid_t pid, int control, const Interrupts* interrupts)
      : name_(std::move(name)), pid_(pid), control_(control), interrupts_(interrupts) {}

  const std::string name_;
  const pid_t pid_;
  const int control_;
  const Interrupts* const interrupts_;
  std::string received_;  // after the last whole line
};

// Standard input of such a process. Used by one thread.
class WireControl {
 public:
  // The words of the next command; empty when there is none any more.
  std::vector<std::string> NextCommand();
  void Answer(absl::string_view line);

 private:
  std::string received_;
};

}  // namespace ps

#endif  // PS_BENCH_WIRE_PROCESS_H_
