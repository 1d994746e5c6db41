#ifndef EVENSHARD_SERVER_SHARD_SHARD_H_
#define EVENSHARD_SERVER_SHARD_SHARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/clock.h"
#include "common/base/error_kind.h"
#include "common/placement/planned_config.h"
#include "proto/admin.pb.h"
#include "proto/parameter_server.pb.h"
#include "server/agreement/clipping.h"
#include "server/agreement/quorum.h"
#include "server/session/mean_table.h"
#include "server/session/membership.h"
#include "server/session/worker_session.h"
#include "server/session/worker_state_requests.h"
#include "server/shard/stall_log.h"
#include "server/shard/update_waits.h"
#include "server/store/chunk_observer.h"
#include "server/store/parameter_store.h"
#include "server/store/shard_counters.h"
#include "server/store/snapshots.h"
#include "server/update/gradient.h"
#include "server/update/update_policy.h"

namespace evenshard {

// One parameter-server shard without its RPCs: the parameters that it owns, the workers that take
// part, and what their pushes do. Thread-safe.
//
// The path of a gradient: exchange_stream.cc receives it -> Push checks it -> update_policy.cc
// decides what to do with it -> parameter_store.cc adds it up and applies the optimizer -> the
// policy calls the worker's ReplySink -> exchange_stream.cc sends the chunk.
//
// Lock order: StoredChunk::mutex, then ExchangeStream's or Snapshots', then Membership's or
// failure_mutex_.
class Shard {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the shard
    int slot = 0;                           // the slot of the plan that it is primary of
    const Clock* clock = nullptr;           // must outlive the shard
    // The state to go on from; null for the initial parameters.
    std::shared_ptr<ParameterStore> store = nullptr;
    // Asked and told of changes in this order (ChunkObservers), before the shard's own snapshots.
    // They must outlive the shard.
    std::vector<ChunkObserver*> observers = {};
    // Null unless the config clips the mean. Must outlive the shard.
    Clipping* clipping = nullptr;
    // Null unless the policy is QUORUM. Must outlive the shard.
    Quorum* quorum = nullptr;
    // Tells the store's history from others: see JoinResponse.history. 0 for a new one.
    uint64_t history = 0;
    // See ViewLink::HoldsRoles. While it returns false, Join, Push and Pull are UNAVAILABLE.
    std::function<bool()> holds_roles = [] { return true; };
  };

  // REQUIRES: the config has the slot. Errors: RESOURCE_EXHAUSTED if there is not enough memory.
  static absl::StatusOr<std::unique_ptr<Shard>> Create(Options options);

  int index() const { return index_; }
  uint64_t incarnation() const { return incarnation_; }
  uint64_t history() const { return history_; }
  // The number of the view that the shard follows; 0 without views.
  uint64_t view() const { return view_; }
  const PlannedConfig& config() const { return config_; }
  ParameterStore& store() { return *store_; }
  const std::shared_ptr<ParameterStore>& shared_store() { return store_; }
  // REQUIRES: the shard owns the chunk.
  StoredChunk& chunk(uint32_t id) { return store_->chunks()[store_->IndexOf(id)]; }

  // Adopts a view in which this process is primary of the slot, and returns where the slot stands.
  // Workers that do not hold their rank in it lose their sessions. Once it returns, no push of an
  // older view is counted. Errors: the failure of the run.
  absl::StatusOr<SlotPosition> Adopt(const View& view);
  // See UpdatePolicy. A failure is the run's.
  void Resume(int index);
  void Confirm(int index, uint64_t change) { policy_->Confirm(index, change); }
  // Ends the shard and returns its parameters, because the process has another role now. Every
  // later call of Join and Push is refused with `reason`.
  std::shared_ptr<ParameterStore> Retire(const absl::Status& reason);

  // Gives a worker its rank. The response has the iteration to start from.
  // Errors: those of Membership::Join; FAILED_PRECONDITION if the worker has another config or plan
  // (the message names the fields that differ if the request has the config), if it does not speak
  // an encoding of the exchange, if the run has failed, or if the rank is another incarnation's in
  // the view; UNAVAILABLE if the worker follows another view.
  absl::StatusOr<JoinResponse> Join(const JoinRequest& request, const std::string& address);

  // Ends a worker's hold on its rank. A request with an error, whose sender has taken part, may
  // fail the run, as a worker that is lost does. Errors: those of Membership::Leave.
  absl::Status Leave(const LeaveRequest& request);

  // Counts a stream of a worker that has joined. Errors: those of Membership::StreamOpened, which
  // the failure of the run replaces if it has failed. With views, UNAVAILABLE in place of
  // FAILED_PRECONDITION: the worker may have joined this slot's shard of an earlier view.
  absl::StatusOr<std::shared_ptr<WorkerSession>> OpenStream(uint32_t worker, uint64_t incarnation);
  // Counts the end of a stream. The worker is lost if it was the last one of a worker that has not
  // left, which may fail the run (WorkerLost).
  void CloseStream(WorkerSession* session);

  // Keeps a worker's report of its usage for Stats. Errors: those of Membership::Report.
  absl::Status Report(const ReportRequest& request);

  // Takes a worker's value for a mean over the workers. Errors: those of Membership::CheckHolds and
  // MeanTable::Ask; FAILED_PRECONDITION under ASYNC, and if a worker that is missing has finished,
  // unless this process is new and may be told of the mean by that worker; UNAVAILABLE while the
  // worker has not joined this slot's shard of a later view, and if the request is of another
  // generation of the run; the run's failure.
  absl::StatusOr<MeanResponse> Mean(const MeanRequest& request);

  // Keep and hand out what the workers have registered (RegisteredStates). Errors: those of
  // RegisteredStates, and of Mean; INVALID_ARGUMENT to another slot than 0.
  absl::Status KeepState(const KeepStateRequest& request);
  absl::StatusOr<TakeStateResponse> TakeState(const TakeStateRequest& request);

  // Bring those together that need, and that have, what workers keep by themselves
  // (WorkerStateRequests). Errors: those of Mean; AskWorkerState has those of
  // WorkerStateRequests::Ask.
  absl::StatusOr<AskWorkerStateResponse> AskWorkerState(const AskWorkerStateRequest& request);
  absl::StatusOr<OfferWorkerStateResponse> OfferWorkerState(const OfferWorkerStateRequest& request);
  // Whether a worker may send, or ask to receive, such state. One that has finished may send.
  absl::Status CheckSendsState(uint32_t worker, uint64_t incarnation) const;
  absl::Status CheckReceivesState(uint32_t worker, uint64_t incarnation) const;
  // Whether nobody has what a worker needs to go on (RegisteredStates, WorkerStateRequests).
  bool has_lost_state() const {
    return store_->registered_states().is_lost() || state_requests_.is_lost();
  }

  // Takes one gradient chunk from a stream of `session`. Errors:
  //   INVALID_ARGUMENT: another worker's push, a chunk that the shard does not own, an encoding
  //     other than the config's, a wrong length, a version that does not exist, or a value that is
  //     not finite. Under REJECT, such a value also fails the run.
  //   FAILED_PRECONDITION: a wrong iteration, or the session has ended.
  //   OUT_OF_RANGE: the update leaves the range of float32. This fails the run.
  //   UNAVAILABLE: the process does not know whether it is still primary.
  //   The failure of the run, if it has failed.
  absl::Status Push(WorkerSession& session, Gradient gradient, std::shared_ptr<ReplySink> sink);
  // The same for a gradient in the memory that the worker shares. REQUIRES: it shares some.
  absl::Status PushShared(WorkerSession& session, const GradientHeader& header,
                          std::shared_ptr<ReplySink> sink);
  // See UpdatePolicy::PushWait.
  absl::Duration PushWait(uint32_t worker) const { return policy_->PushWait(worker); }

  // See UpdatePolicy::RepliesMayBorrow.
  bool RepliesMayBorrow() const { return policy_->RepliesMayBorrow(); }
  // See UpdatePolicy. REQUIRES: the shard owns the chunk.
  bool IsConfirmed(uint32_t chunk) const { return policy_->IsConfirmed(store_->IndexOf(chunk)); }
  bool MayReply(uint32_t chunk) const { return policy_->MayReply(store_->IndexOf(chunk)); }
  void Defer(uint32_t chunk, DueReply reply) {
    policy_->Defer(store_->IndexOf(chunk), std::move(reply));
  }
  // What readers take while the training goes on.
  Snapshots& snapshots() { return snapshots_; }
  // Counts `bytes` of parameters as sent to the worker of `session`, or as pulled if it is null.
  void CountReply(WorkerSession* session, uint64_t bytes);
  // Returns the bytes of gradients and parameters that were received and sent since the start.
  uint64_t bytes_moved() const {
    return store_->counters().received.bytes_in() + store_->counters().bytes_out;
  }

  // Fails the run. Only the first failure counts. It becomes one of the kind RUN_FAILED.
  void Fail(const absl::Status& failure);

  // Takes the ranks of workers that have joined and opened no stream. Frees what snapshots do not
  // use. Fails the run if an update has waited for longer than Config::worker_patience, or waits
  // for a worker that has finished. Otherwise logs which workers an update waits for. One thread
  // calls this about once a second.
  void CheckWaits();

  // Refuses Join and Push and ends snapshots from now on, with `reason`, without calling the
  // listener of OnEnd: the end of a shard that shuts down is no failure. Returns false if the shard
  // has been closed or the run has failed before.
  bool Close(const absl::Status& reason);

  // Returns the first failure of the run, or OK. A failed shard keeps its parameters, answers Pull
  // and GetStats, and refuses Join and Push.
  absl::Status failure() const;
  // UNAVAILABLE while another process may have the slot without this one's knowledge.
  absl::Status CheckHoldsRole() const;
  // Whether the run has failed. Otherwise a failure() is only why this shard has ended.
  bool has_failed() const { return KindOf(failure()) == ErrorDetail::RUN_FAILED; }
  // Whether some worker has finished and none trains any more.
  bool IsOver() const;
  // Has `listener` called when the run fails, with a reason of the kind RUN_FAILED, or when the
  // shard retires.
  using EndListener = std::function<void(const absl::Status& reason)>;
  // REQUIRES: no RPC has been served.
  void OnEnd(EndListener listener);

  ShardStats Stats() const;

 private:
  explicit Shard(Options& options);

  // Whether what a worker asks or gives belongs to this generation of the run.
  absl::Status CheckGeneration(uint64_t generation) const;
  // Whether a worker that has joined may ask for `what`, which needs an iteration in common.
  absl::Status CheckAsks(uint32_t worker, uint64_t incarnation, absl::string_view what) const;
  // The same for one that gives the others something, also when it has finished.
  absl::Status CheckGives(uint32_t worker, uint64_t incarnation, absl::string_view what) const;
  // The workers that have finished, here or while another process was primary of the slot.
  std::set<uint32_t> HaveFinished() const;
  // Those of them from whom nothing comes any more that this process may lack.
  std::set<uint32_t> TellNoMore() const;
  // Errors: those of RegisteredStates::Keep; INVALID_ARGUMENT to another slot than 0.
  absl::Status Keep(uint32_t worker, const RegisteredState& state);

  // Errors: those of Join that the view has.
  absl::Status CheckView(const JoinRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(view_mutex_);

  // Why the run cannot begin: a worker that it needs has been refused. CheckWaits fails the run, so
  // that this worker hears its own refusal first, and the others hear of it.
  absl::Status refused() const {
    absl::MutexLock lock(&failure_mutex_);
    return refused_;
  }
  // Checks a gradient and passes it to the policy. Errors: the other ones of Push.
  absl::Status Take(int index, WorkerSession& session, Gradient gradient,
                    std::shared_ptr<ReplySink> sink);
  // Logs that a worker is lost. Without views, fails the run under SYNC, and under QUORUM if fewer
  // workers are left than an update needs. `how` completes "worker 2 was lost: ".
  void WorkerLost(uint32_t rank, uint64_t incarnation, absl::string_view how);
  // Whether the run goes on without the workers that are lost, as far as no coordinator decides
  // that.
  bool HasEnoughWorkers() const;
  // Returns until when updates have waited for the coordinator: until now if the view has no holder
  // of a rank that some update waits for, or no primary of some slot, and otherwise until the
  // latest of these ranks got its holder. The coordinator decides how long that lasts, and
  // everybody may be held up by it: a stream is not read while what it has brought waits for a
  // lower rank's push (update.deterministic).
  absl::Time WaitedForCoordinator(const PendingUpdates& updates, absl::Time now) const;
  // Fails the run if an error of the policy says that it must.
  void FailIfFatal(const absl::Status& status);
  void End(const absl::Status& reason);

  const PlannedConfig& config_;
  const int index_;
  const Clock* const clock_;
  const absl::Time start_time_;
  const uint64_t incarnation_;
  const uint64_t history_;
  const std::function<bool()> holds_roles_;
  EndListener on_end_;  // constant once RPCs are served

  // Used by CheckWaits only.
  StallLog stall_log_;
  absl::Time waited_for_coordinator_ = absl::InfinitePast();  // when updates last did

  // Synchronised by themselves.
  Membership membership_;
  MeanTable means_{&membership_};
  WorkerStateRequests state_requests_{clock_, /*may_be_lost=*/config_.proto().has_local()};
  std::shared_ptr<ParameterStore> store_;
  Snapshots snapshots_;
  std::unique_ptr<UpdatePolicy> policy_;
  std::atomic<uint64_t> view_{0};
  std::atomic<uint64_t> generation_{0};  // of the view

  mutable absl::Mutex view_mutex_;
  // Who holds a rank in the view, and since when.
  struct RankHolder {
    uint64_t incarnation = 0;
    absl::Time since = absl::InfinitePast();
    bool has_finished = false;
  };
  std::vector<RankHolder> ranks_ ABSL_GUARDED_BY(view_mutex_);  // by rank; empty without views
  std::shared_ptr<const WorkerSets> worker_sets_ ABSL_GUARDED_BY(view_mutex_) =
      std::make_shared<const WorkerSets>(config_.workers());
  bool is_over_in_view_ ABSL_GUARDED_BY(view_mutex_) = false;
  bool has_lost_slot_ ABSL_GUARDED_BY(view_mutex_) = false;  // some slot has no primary

  std::atomic<bool> failed_{false};  // set after failure_; read for every chunk
  mutable absl::Mutex failure_mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(failure_mutex_);
  absl::Status refused_ ABSL_GUARDED_BY(failure_mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_SHARD_SHARD_H_
