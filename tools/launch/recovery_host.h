#ifndef EVENSHARD_TOOLS_LAUNCH_RECOVERY_HOST_H_
#define EVENSHARD_TOOLS_LAUNCH_RECOVERY_HOST_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/view.pb.h"

namespace evenshard {

// A place of a run that one process after another can take.
struct ProcessRole {
  bool is_worker = false;
  uint32_t index = 0;  // a worker's rank

  friend auto operator<=>(const ProcessRole&, const ProcessRole&) = default;
};

// Decides for a supervisor what becomes of the run when its processes end.
class RecoveryHost {
 public:
  enum class Verdict {
    kRestart,  // the process is started again
    kDone,     // the process is not needed any more, however it ended
    kFailure,  // the run has failed, unless the process was a worker that ended with success
  };
  struct Orders {
    std::vector<ProcessRole> kill;  // are silent: they get SIGKILL
    bool finished = false;          // the training has ended
    // With `finished`: workers that the training has ended without.
    std::vector<ProcessRole> end;
    std::vector<RecoveryEvent> events;  // since the last call
  };

  virtual ~RecoveryHost() = default;

  // A process is about to be started.
  virtual void Started(ProcessRole role) = 0;
  // A process has ended and is reaped. `reason` says how: "was killed by SIGKILL"; `by_signal`
  // whether a signal ended it, and `success` whether its exit code was 0.
  virtual Verdict Ended(ProcessRole role, absl::string_view reason, bool by_signal,
                        bool success) = 0;
  // Says what is to be done. Called about every kPollPeriod.
  virtual Orders Poll() = 0;
  // Why the run has failed.
  virtual absl::Status failure() const = 0;

  static constexpr absl::Duration kPollPeriod = absl::Milliseconds(50);
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_RECOVERY_HOST_H_
