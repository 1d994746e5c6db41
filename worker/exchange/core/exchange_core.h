#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_CORE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_CORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "common/wire/chunk_codec.h"
#include "proto/parameter_server.pb.h"
#include "proto/view.pb.h"
#include "worker/exchange/core/exchange_round.h"
#include "worker/exchange/core/exchange_transport.h"
#include "worker/exchange/core/push_lanes.h"
#include "worker/exchange/core/slot_link.h"

namespace evenshard {

// Decides for a worker which slot it is connected to where, what is pushed again, which view it
// follows, and when the exchange fails. It knows no network: an ExchangeTransport connects, and
// reports what happens. Thread-safe. Only the methods named Await block.
//
// Why a connection ends decides what follows:
//
//   UNAVAILABLE, CANCELLED, or no      connect again: after 10 ms, doubled at each further attempt
//   reason at all                      without an answer up to 500 ms
//   RESOURCE_EXHAUSTED before the      the same: the shard has yet to notice that earlier streams
//   join is accepted                   are gone
//   any other                          the exchange fails with it
//
// Without views a worker tries for limits.reconnect_seconds; 0 means that every end of a connection
// fails the exchange. With views it tries until the view says where the slot is now, or until
// nothing has moved for limits.exchange_seconds (ExchangeRound::CheckProgress). A connection that
// is there again gets all that was pushed and not answered, without `hold`.
//
// A run with views: the first view in which this worker is a MEMBER connects it. A view with
// another primary for a slot connects the slot to it; an unchanged slot gets what is unanswered
// once more, under the new view's number. A view of a new generation fails the iteration under way,
// and went_back() is true until Resume.
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
    Trace* trace = nullptr;                         // see ExchangeRound
    std::function<void()> while_waiting = nullptr;  // see ExchangeRound
  };

  explicit ExchangeCore(const Options& options);

  // Begins to connect, with views as soon as there is one. The first slot decides between workers
  // that want the same rank at the same time; the others follow when it has accepted this one.
  void Start();
  // Follows a view, unless it is not newer than the present one.
  void OnView(const View& view);
  // Nobody makes views any more: the exchange fails with the reason. OK: the run has ended well,
  // which implies that this worker has finished if it has said so.
  void OnEnd(const absl::Status& reason);
  // Ends attempts and waits that have taken too long. Must be called every tick_period().
  void Tick();
  absl::Duration tick_period() const { return tick_period_; }
  // Whether a connection that breaks is made again.
  bool reconnects() const { return patience_.reconnects(); }
  // Fails the exchange. Only the first failure is kept.
  void Fail(const absl::Status& failure);

  // Events of the transport; see ExchangeTransport. Those of replaced attempts have no effect.
  void Connected(int slot, uint64_t attempt, const JoinResponse& response);
  void Broken(int slot, uint64_t attempt, const absl::Status& status);
  // Removes the chunks of the next message for a stream of the slot, and returns their headers, or
  // none. `has_data`: the gradients go with the message, which bounds how many.
  std::vector<GradientHeader> Take(int slot, int stream, bool has_data);
  // The chunk of `header` has passed flow control.
  void Sent(const GradientHeader& header) { round_.Sent(header.chunk, header.iteration); }
  // See ExchangeRound. Errors: also INTERNAL for a chunk that is not the slot's.
  absl::StatusOr<bool> Claim(int slot, const ParameterHeader& header);
  void Answered(uint32_t chunk, uint64_t version) { round_.Answered(chunk, version); }

  // Whether every slot has accepted this worker, so that start_iteration is known and iterations
  // may begin. False again after went_back() until Resume has connected the slots anew.
  bool ready() const;
  // OK, or why the exchange has failed or went back.
  absl::Status failure() const { return round_.failure(); }
  bool went_back() const;
  uint64_t start_iteration() const;  // REQUIRES: ready()
  // For a worker that joins a run under way: the iteration start_iteration() - 1, for which it must
  // push `skip` for all chunks first. The answers give it the parameters at start_iteration(). If
  // all others finish meanwhile, the wait for the answers ends without them, and abandoned is true.
  struct CatchUp {
    std::optional<uint64_t> iteration;
    bool abandoned = false;
  };
  CatchUp catch_up() const;
  // REQUIRES: the iteration of catch_up is over. It has none from now on.
  void EndCatchUp();

  uint64_t view_number() const;
  std::vector<WorkerSet> worker_sets() const;
  // What this worker says of itself to whoever makes the views.
  ProcessState State() const;
  // "shard 1 (10.0.0.2:50051)", with the address at which the slot is now.
  std::string SlotName(int slot) const;

  // Begins an iteration, in which the worker takes part without contributing if `skip`. See
  // ExchangeRound. Errors: the failure. REQUIRES: ready(), and round().Settled().
  absl::Status Begin(uint64_t iteration, bool skip, absl::Span<const float> learning_rates = {});
  // Queues chunks for their slots. `all`: these are the last of the iteration. `skip`: they
  // contribute nothing.
  void Push(absl::Span<const uint32_t> chunks, bool all, bool skip = false);
  // What has been pushed leaves, although more of the iteration will follow: somebody waits for it.
  void Flush();
  // See PushLanes.
  const std::vector<uint32_t>& last_chunks() const { return lanes_.last_chunks(); }
  const std::vector<uint32_t>& other_chunks() const { return lanes_.other_chunks(); }
  // The progress of the iteration, with the waits for it.
  ExchangeRound& round() { return round_; }
  const ExchangeRound& round() const { return round_; }

  // After went_back: connects to the slots of the present view. REQUIRES: no stream is left.
  void Resume();
  // The worker has trained to the end: broken connections are not made again, and State() says it
  // from the call with `announced` on.
  void Finish(bool announced);
  // Whether the view says that this worker has finished.
  bool finished() const;
  // No event has an effect from now on. If the worker has failed with an error, State() says so,
  // which fails the run: unless it was told to stop (CANCELLED), or the run goes on without it.
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
    kLeaving,   // after Finish
    kStopped,
  };

  // Follows view_ if this worker is a member of it. Returns the slots that have something to take.
  std::vector<int> Adopt() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves each slot to its primary in view_. Returns the same.
  std::vector<int> MoveSlots() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends all connections, and forgets what they were to.
  void ForgetSlots() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins to connect the slots that have no connection and no attempt: only the first until that
  // has accepted this worker.
  void ConnectSlots() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Attempt(int slot, absl::Duration delay) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(int slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PushAgain(int slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Every slot has accepted this worker: decides where it starts.
  absl::Status BeginRunning() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends the catch-up if nobody is left who would let it end.
  void CheckCatchUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLocked(const absl::Status& failure) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The state of this worker in view_; ABSENT if another incarnation holds the rank.
  WorkerView::State OwnState() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Constant after construction.
  const PlannedConfig& config_;
  const Options options_;
  absl::Duration tick_period_;

  // What the transport's threads use without the lock.
  PushLanes lanes_;
  std::vector<std::atomic<bool>> answers_;  // by slot: one has counted since the attempt began

  mutable absl::Mutex names_mutex_;  // no other lock is acquired under it
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(names_mutex_);  // by slot

  ExchangeRound round_;  // thread-safe
  const SlotPatience patience_;

  mutable absl::Mutex mutex_;
  Stage stage_ ABSL_GUARDED_BY(mutex_) = Stage::kIdle;
  std::vector<SlotLink> slots_ ABSL_GUARDED_BY(mutex_);
  View view_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // of the connections; 0: none yet
  bool is_member_ ABSL_GUARDED_BY(mutex_) = false;   // has been a MEMBER
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status later_failure_ ABSL_GUARDED_BY(mutex_);  // of the exchange, after it went back
  bool is_dismissed_ ABSL_GUARDED_BY(mutex_) =
      false;                                     // the run goes on without this worker, or ended
  std::string gave_up_ ABSL_GUARDED_BY(mutex_);  // why this worker has failed
  bool says_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool all_pushed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time moved_ ABSL_GUARDED_BY(mutex_);  // when joining or leaving last made progress
  uint64_t start_iteration_ ABSL_GUARDED_BY(mutex_) = 0;
  CatchUp catch_up_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_CORE_H_
