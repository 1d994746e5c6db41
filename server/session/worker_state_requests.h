#ifndef EVENSHARD_SERVER_SESSION_WORKER_STATE_REQUESTS_H_
#define EVENSHARD_SERVER_SESSION_WORKER_STATE_REQUESTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"

namespace evenshard {

// Which workers need what the others keep by themselves (ParameterServer.AskWorkerState), and who
// sends it to them. All that wait at the same exchange have the same. Thread-safe.
class WorkerStateRequests {
 public:
  // A worker that has not asked for so long does not count any more.
  static constexpr absl::Duration kForgetAfter = absl::Seconds(10);

  // `may_be_lost`: a worker can go on without what nobody has (config.local).
  explicit WorkerStateRequests(const Clock* clock, bool may_be_lost = false)
      : clock_(*clock), may_be_lost_(may_be_lost) {}

  enum class Progress : uint8_t {
    kNone,
    kSender,  // somebody sends it
    kBroken,  // and does not any more
    kPassed,  // the others have completed the exchange before which it was asked for
  };
  // `worker` needs the state before exchange `iteration`, which `ranks` take part in. One of those
  // that `have_finished` has nothing to give unless it offers. Returns what has become of its
  // ticket; a new ticket replaces the one before it. Errors: FAILED_PRECONDITION if the sender has
  // refused; if every one of the ranks needs it, NOT_FOUND where it may be lost, and otherwise
  // UNAVAILABLE, since the run has to go back.
  absl::StatusOr<Progress> Ask(uint32_t worker, uint64_t ticket, uint64_t iteration,
                               const std::vector<uint32_t>& ranks,
                               const std::set<uint32_t>& have_finished = {});

  struct Answer {
    uint64_t ticket = 0;      // to serve; 0 for none
    bool is_awaited = false;  // some worker needs its state
  };
  struct Sender {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
  };
  // `sender` waits in exchange `iteration`, or before it, and has its state.
  Answer Offer(const Sender& sender, uint64_t iteration);
  // The sender of the state of this ticket.
  std::optional<Sender> SenderOf(uint64_t ticket) const;
  // Whether somebody still asks with this ticket.
  bool IsAwaited(uint64_t ticket) const;
  // That one cannot send it, for a reason, or does not send it any more.
  void Refuse(uint64_t ticket, const std::string& reason);
  void Lose(uint64_t ticket);

  // The worker has received its state.
  void Received(uint32_t worker);

  // Whether nobody has what a worker has asked for.
  bool is_lost() const {
    absl::MutexLock lock(&mutex_);
    return is_lost_;
  }

 private:
  struct Request {
    uint64_t ticket = 0;
    uint64_t iteration = 0;
    absl::Time begun;  // when its worker has begun to ask, with whatever tickets
    absl::Time asked;  // the last time
    Progress progress = Progress::kNone;
    Sender sender;
    std::string refusal;
  };

  void ForgetOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  const bool may_be_lost_;
  mutable absl::Mutex mutex_;  // no other lock is acquired under it
  std::map<uint32_t, Request> requests_ ABSL_GUARDED_BY(mutex_);    // by the worker that asks
  std::map<uint32_t, absl::Time> offered_ ABSL_GUARDED_BY(mutex_);  // by rank, the last time
  bool is_lost_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SESSION_WORKER_STATE_REQUESTS_H_
