#ifndef EVENSHARD_COMMON_CONTROL_VIEW_START_TABLE_H_
#define EVENSHARD_COMMON_CONTROL_VIEW_START_TABLE_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/view.pb.h"

namespace evenshard {

// What is known of the starts of the processes of one kind, the ps by index or the workers by rank:
// which start of each is alive and what it says, and what happened to the one before. Has a bound.
// Not thread-safe.
class StartTable {
 public:
  struct Process {
    uint64_t present = 0;     // the incarnation of the start that is alive, 0 if there is none
    ProcessState state = {};  // what that start has said last
    // What happened to the latest start that is gone, as "was killed by SIGKILL", and when.
    std::string reason = {};
    absl::Time gone_since = absl::InfinitePast();
    std::deque<uint64_t> gone = {};  // the latest starts that are gone, the last one at the end
  };

  // `kind` is how an error names a process: "ps" or "worker".
  StartTable(std::string kind, int size) : kind_(std::move(kind)), processes_(size) {}

  int size() const { return static_cast<int>(processes_.size()); }
  const Process& operator[](uint32_t index) const { return processes_[index]; }
  bool IsAlive(uint32_t index) const { return processes_[index].present != 0; }
  // Whether this start of the process is alive.
  bool IsAlive(const ProcessId& id) const;

  // Notes what a start says. It replaces the start before.
  // Errors: INVALID_ARGUMENT if there is no such process or it has no incarnation;
  // FAILED_PRECONDITION if this start is gone.
  absl::Status Seen(uint32_t index, const ProcessState& state, absl::Time now);

  // Notes that a start is gone.
  void Gone(uint32_t index, uint64_t incarnation, absl::string_view reason, absl::Time since);

 private:
  const std::string kind_;
  std::vector<Process> processes_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONTROL_VIEW_START_TABLE_H_
