#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_CORE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_CORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "proto/parameter_server.pb.h"
#include "proto/view.pb.h"
#include "worker/exchange/core/exchange_round.h"
#include "worker/exchange/core/exchange_transport.h"
#include "worker/exchange/core/slot_calls.h"
#include "worker/exchange/core/slot_link.h"
#include "worker/exchange/core/slot_links.h"

namespace evenshard {

// The worker's connection state machine: where each slot is, what to resend, which view to follow,
// and when the exchange fails. It knows no network: an ExchangeTransport connects, and reports what
// happens. Thread-safe. Only the methods named Await block.
//
// Why a connection ends decides what follows:
//
//   UNAVAILABLE, CANCELLED, or no      reconnect: after 10 ms, doubled at each further attempt
//   reason at all                      without an answer up to 500 ms
//   RESOURCE_EXHAUSTED before the      the same: the shard has yet to notice that earlier streams
//   join is accepted                   are gone
//   any other                          the exchange fails with it
//
// Without views a worker tries for limits.reconnect_seconds; 0 means that every end of a connection
// fails the exchange. With views it tries until the view says where the slot is now, or until
// nothing has moved for limits.exchange_seconds (ExchangeRound::CheckProgress). A new connection is
// sent every push that has no answer, without `hold`.
//
// A run with views: the first view in which this worker is a MEMBER connects it. A view with
// another primary for a slot connects the slot to it; an unchanged slot is sent all unanswered
// pushes again, under the new view's number. A view of a new generation fails the iteration under
// way, and went_back() is true until Resume. A worker waits without a limit, as long as there is a
// coordinator, for what only that decides: that this worker is a member, that a slot has a primary
// again, and that the training has ended.
class ExchangeCore {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the core
    int rank = 0;
    uint64_t incarnation = 0;
    const Clock* clock = nullptr;            // must outlive the core; only Now() is called
    ExchangeTransport* transport = nullptr;  // must outlive the core
    // By slot. Not used with views.
    std::vector<std::string> addresses = {};
    bool has_views = false;                         // the run has views
    std::string process = {};                       // see JoinRequest
    Trace* trace = nullptr;                         // see ExchangeRound
    std::function<void()> while_waiting = nullptr;  // see ExchangeRound
  };

  explicit ExchangeCore(const Options& options);

  // Begins to connect, with views as soon as there is one. The first slot decides between workers
  // that want the same rank at the same time; the others follow when it has accepted this one.
  void Start();
  // Follows a view, unless it is not newer than the present one.
  void OnView(const View& view);
  // The coordinator has ended the run, or serves this worker no longer: fails the exchange with the
  // reason.
  void OnEnd(const absl::Status& reason);
  // Ends attempts and waits that have taken too long. Must be called every tick_period(). Returns
  // whether State() has changed.
  bool Tick();
  absl::Duration tick_period() const { return tick_period_; }
  // Says when a failed pull of a slot's chunks is retried.
  SlotPull StartPull() const;
  // Fails the exchange. Only the first failure is kept.
  void Fail(const absl::Status& failure);

  // Events of the transport; see ExchangeTransport. Those of replaced attempts have no effect.
  void Connected(int slot, uint64_t attempt, const JoinResponse& response);
  void Broken(int slot, uint64_t attempt, const absl::Status& status);
  // What AwaitReady and AwaitConnected wait for, for a caller that must not block: whether every
  // slot has accepted this worker, so that round().next_iteration() is known and iterations may
  // begin, which is false again from went_back() until Resume has connected the slots anew; and
  // whether a slot is connected.
  bool ready() const {
    absl::MutexLock lock(&mutex_);
    return stage_ == Stage::kRunning || stage_ == Stage::kLeaving;
  }
  bool IsConnected(int slot) const {
    absl::MutexLock lock(&mutex_);
    return links_.IsConnected(slot);
  }
  // OK, or why the exchange has failed or went back.
  absl::Status failure() const { return round_.failure(); }
  bool went_back() const {
    absl::MutexLock lock(&mutex_);
    return stage_ == Stage::kWentBack;
  }
  // For a worker that joins a run under way (SYNC and QUORUM with views, SSP): the iteration before
  // its first one, in which it must take part without contributing. The answers give it its initial
  // parameters. If all others finish meanwhile, the wait for the answers ends without them, and
  // abandoned is true.
  struct CatchUp {
    std::optional<uint64_t> iteration;
    bool abandoned = false;
  };
  CatchUp catch_up() const;
  // REQUIRES: the iteration of catch_up is over. It has none from now on.
  void EndCatchUp();

  // Has slot 0's next process told what this worker has registered, unless the run has gone back
  // meanwhile.
  void Keep(RegisteredState state) {
    absl::MutexLock lock(&mutex_);
    if (stage_ == Stage::kRunning || stage_ == Stage::kLeaving) links_.Keep(std::move(state));
  }

  // What a worker that has trained to the end has registered last. It joins no process any more
  // that takes slot 0 over, so that each of them has to be told by itself.
  std::optional<RegisteredState> KeptAtEnd() const {
    absl::MutexLock lock(&mutex_);
    return stage_ == Stage::kLeaving ? links_.kept() : std::nullopt;
  }

  // That of the slots to which it is connected, and to which its state belongs; 0 without views,
  // and from went_back() until Resume has connected them anew.
  uint64_t generation() const {
    absl::MutexLock lock(&mutex_);
    return generation_;
  }
  uint64_t view_number() const {
    absl::MutexLock lock(&mutex_);
    return view_.number();
  }
  std::vector<WorkerSet> worker_sets() const;
  // The state of this worker that the coordinator is told.
  ProcessState State() const;
  // "shard 1 (10.0.0.2:50051)", with the address at which the slot is now.
  std::string SlotName(int slot) const { return links_.Name(slot); }
  // Where the slot's primary is in the view, which a worker that has finished does not connect to
  // any more; "" if there is none.
  std::string PrimaryInView(int slot) const;

  // The worker's iteration. Begin REQUIRES: ready().
  ExchangeRound& round() { return round_; }
  const ExchangeRound& round() const { return round_; }

  // After went_back: connects to the slots of the present view. REQUIRES: no stream is left.
  void Resume();
  // How a worker leaves, with an error or because it has trained to the end:
  //   1. BeginLeave. Broken connections are not made again.
  //   2. The caller tells every slot what LeaveMessage has (SlotLeave), and then calls EndLeave.
  //   3. With views, one that has trained to the end says so in State() from now on, until
  //      finished(): then the caller calls Stop. It is done already otherwise.
  // The caller announces State() after each of them.
  void BeginLeave(const absl::Status& outcome);
  LeaveRequest LeaveMessage(const absl::Status& outcome) const;  // without slot and view
  // Says when a Leave that has not reached its slot is retried.
  SlotLeave StartLeave(const absl::Status& outcome, absl::Duration timeout) const {
    return SlotLeave(options_.clock, outcome.ok() && patience_.reconnects(), timeout);
  }
  void EndLeave();
  // Whether this worker has finished and the training has ended, so that it is no longer needed.
  bool finished() const {
    absl::MutexLock lock(&mutex_);
    return is_finished_;
  }
  // No event has an effect from now on. If the worker has failed with an error, State() says so,
  // which fails the run: unless it was told to stop (CANCELLED), the run goes on without it, or the
  // run has gone back and it has not resumed. Then it is one that is lost.
  void Stop(const absl::Status& outcome);

  // Wait for ready(), finished(), and a connection to the slot. Errors: the failure.
  absl::Status AwaitReady();
  absl::Status AwaitFinished();
  absl::Status AwaitConnected(int slot);

 private:
  enum class Stage : uint8_t {
    kIdle,     // until Start
    kWaiting,  // with views: until this worker is a MEMBER
    kJoining,  // not every slot has accepted this worker
    kRunning,
    kWentBack,  // until Resume
    kLeaving,   // after BeginLeave, trained to the end
    kStopped,
  };

  // Follows view_ if this worker is a member of it. Returns the slots that have something to take.
  std::vector<int> Adopt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ConnectSlots() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Every slot has accepted this worker: decides where it starts.
  absl::Status BeginRunning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the catch-up if every worker that could complete it has finished.
  void CheckCatchUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckWaits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> Unreachable() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void FailLocked(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The state of this worker in view_; ABSENT if another incarnation holds the rank.
  WorkerView::State OwnState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const PlannedConfig& config_;
  const Options options_;
  absl::Duration tick_period_;

  ExchangeRound round_;  // thread-safe
  const SlotPatience patience_;

  mutable absl::Mutex mutex_;  // acquired before the round's
  SlotLinks links_;            // all but its names guarded by mutex_
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kIdle;
  View view_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;   // of the connections; 0: none yet
  bool is_member_ ABSL_GUARDED_BY(mutex_) = false;    // has been one in it
  bool has_started_ ABSL_GUARDED_BY(mutex_) = false;  // every slot has accepted it, at least once
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status later_failure_ ABSL_GUARDED_BY(mutex_);  // of the exchange, after it went back
  bool is_dismissed_ ABSL_GUARDED_BY(mutex_) =
      false;                                     // the run goes on without this worker, or ended
  std::string gave_up_ ABSL_GUARDED_BY(mutex_);  // why this worker has failed
  std::vector<uint32_t> told_unreachable_ ABSL_GUARDED_BY(mutex_);
  bool says_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time started_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> catch_up_ ABSL_GUARDED_BY(mutex_);  // the iteration, see CatchUp
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_CORE_H_
