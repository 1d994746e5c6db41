#include "server/shard/shard.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/incarnation.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/process/resident_memory.h"
#include "server/session/join_check.h"
#include "server/shard/push_format.h"
#include "server/update/make_update_policy.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

std::string Rounded(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Seconds(1)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(Options options) {
  const PlannedConfig& config = *options.config;
  if (options.store == nullptr) {
    ASSIGN_OR_RETURN(options.store, ParameterStore::Create(config, options.slot));
  }
  std::unique_ptr<Shard> shard(new Shard(options));
  options.observers.push_back(&shard->snapshots_);
  shard->policy_ =
      MakeUpdatePolicy(config, shard->store_.get(), ChunkObservers(std::move(options.observers)),
                       options.clock, options.clipping, options.quorum);
  return shard;
}

Shard::Shard(Options& options)
    : config_(*options.config),
      index_(options.slot),
      clock_(options.clock),
      start_time_(clock_->Now()),
      incarnation_(NewIncarnation()),
      history_(options.history != 0 ? options.history : NewIncarnation()),
      holds_roles_(std::move(options.holds_roles)),
      membership_(config_.workers(), absl::Seconds(config_.proto().limits().reconnect_seconds()),
                  clock_),
      store_(std::move(options.store)),
      snapshots_({.config = &config_, .store = store_.get(), .slot = index_, .is_over = [this] {
                    return IsOver();
                  }}) {}

absl::StatusOr<SlotPosition> Shard::Adopt(const View& view) {
  RETURN_IF_ERROR(failure());
  PolicyView adopted{.number = view.number(),
                     .worker_sets = std::make_shared<const WorkerSets>(view, config_.workers()),
                     .worker_set_changes = view.worker_set_changes(),
                     .handing_over = view.slot(index_).handing_over()};
  for (int rank = 0; rank < view.worker_size(); ++rank) {
    const WorkerView::State state = view.worker(rank).state();
    if (state == WorkerView::LOST || state == WorkerView::FINISHED) adopted.left.push_back(rank);
  }
  {
    absl::MutexLock lock(&view_mutex_);
    worker_sets_ = adopted.worker_sets;
    ranks_.resize(config_.workers());
    for (int rank = 0; rank < view.worker_size(); ++rank) {
      const WorkerView& worker = view.worker(rank);
      const bool is_held = worker.state() != WorkerView::LEAVING;
      const uint64_t incarnation = is_held ? worker.incarnation() : 0;
      RankHolder& holder = ranks_[rank];
      if (holder.incarnation != incarnation) holder = {incarnation, clock_->Now()};
      holder.has_finished = worker.state() == WorkerView::FINISHED;
      membership_.EndOthers(rank, incarnation);
    }
    view_ = view.number();
    generation_ = view.generation();
    is_over_in_view_ = view.finished();
    has_lost_slot_ =
        absl::c_any_of(view.slot(), [](const SlotView& slot) { return !slot.has_primary(); });
  }
  snapshots_.WakeAll();
  absl::StatusOr<SlotPosition> position = policy_->Adopt(adopted);
  FailIfFatal(position.status());
  return position;
}

void Shard::Resume(int index) { FailIfFatal(policy_->Resume(index)); }

absl::Status Shard::CheckView(const JoinRequest& request) const {
  RETURN_IF_ERROR(CheckHoldsRole());
  if (request.view() != view_) {
    return absl::UnavailableError(absl::StrCat("worker ", request.worker(), " follows view ",
                                               request.view(), ", shard ", index_, " view ",
                                               view_.load(), "; try again"));
  }
  if (view_ == 0 || request.worker() >= ranks_.size() ||
      ranks_[request.worker()].incarnation == request.incarnation()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", request.worker(), " is not this start's of the worker in view ",
                   view_.load(), ": it counts as lost or has been replaced"));
}

absl::Status Shard::CheckHoldsRole() const {
  if (holds_roles_()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("shard ", index_,
                                             " cannot be sure that the slot is still its own; try "
                                             "again"));
}

absl::StatusOr<JoinResponse> Shard::Join(const JoinRequest& request, const std::string& address) {
  const std::string process = Printable(request.process());
  const std::string place = process.empty() ? address : absl::StrCat(address, ", ", process);
  if (absl::Status status = failure(); !status.ok()) {
    if (!has_failed()) return status;  // the slot is another process's
    // The failure may be DEADLINE_EXCEEDED, which a worker would take for its own time limit.
    return WithKind(ErrorDetail::RUN_FAILED,
                    absl::FailedPreconditionError(absl::StrCat(
                        "the run has failed, start the shards again: ", status.message())));
  }
  if (absl::Status refusal = CheckJoin(config_, request, index_); !refusal.ok()) {
    membership_.Refused(request.worker(), refusal);
    // The run cannot begin without this rank, whose process will not come back as it is.
    if (config_.is_from_workers() && view_ == 0 &&
        request.worker() < static_cast<uint32_t>(config_.workers()) &&
        !membership_.EverJoined(request.worker()) &&
        config_.proto().update().policy() == Update::SYNC) {
      absl::MutexLock lock(&failure_mutex_);
      refused_.Update(absl::AbortedError(absl::StrCat(refusal.message(), "; it is ", place)));
    }
    return refusal;
  }
  JoinResponse response;
  absl::StatusOr<std::shared_ptr<WorkerBuffers>> buffers = WorkerBuffers::Map(config_, request);
  if (!buffers.ok() && request.has_shared_buffers()) {
    response.set_shared_buffers_refusal(std::string(buffers.status().message()));
    spdlog::info("exchanging with worker {} by messages: {}", request.worker(),
                 response.shared_buffers_refusal());
  }
  std::shared_ptr<WorkerSession> session;
  {
    // Both in the same view, or a rank could be taken from the one to whom a newer view gives it.
    absl::MutexLock lock(&view_mutex_);
    RETURN_IF_ERROR(CheckView(request));
    ASSIGN_OR_RETURN(session,
                     membership_.Join(request.worker(), request.incarnation(), place,
                                      buffers.ok() ? *std::move(buffers) : nullptr, view_));
  }
  if (request.has_state()) {
    RETURN_IF_ERROR(Keep(request.worker(), request.state()));
  }
  response.set_shared_buffers(session->buffers() != nullptr);
  response.set_shard(index_);
  response.set_incarnation(incarnation_);
  response.set_history(history_);
  // The fence of WorkerSession: this acquires every chunk's lock, so a push of the last incarnation
  // has been counted after it, or never will be.
  const UpdatePolicy::Start start = policy_->Join(request.worker(), request.incarnation());
  response.set_start_iteration(start.iteration);
  response.set_assignments(start.assignments);
  response.set_recent_assignments(start.recent_assignments);
  return response;
}

absl::Status Shard::Leave(const LeaveRequest& request) {
  const bool failed = !request.error().empty();
  ASSIGN_OR_RETURN(const bool took_part, membership_.Leave(request.worker(), request.incarnation(),
                                                           failed, request.view()));
  // With views, the coordinator decides whether one that has failed is waited for.
  if (!failed || view_ == 0) policy_->Leave(request.worker(), request.incarnation());
  snapshots_.WakeAll();
  // A worker that has not taken part yet can be started again without harm. With views, the
  // coordinator decides.
  if (failed && took_part && !request.before_start() && view_ == 0 && !HasEnoughWorkers()) {
    Fail(absl::AbortedError(
        absl::StrCat("worker ", request.worker(), " gave up: ", Printable(request.error()))));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<WorkerSession>> Shard::OpenStream(uint32_t worker,
                                                                 uint64_t incarnation) {
  // A worker may have lost its rank because the run has failed. It is told the failure then.
  // Nothing else would end a stream that comes after the shard has ended.
  RETURN_IF_ERROR(failure());
  absl::StatusOr<std::shared_ptr<WorkerSession>> session =
      membership_.StreamOpened(worker, incarnation);
  if (view_ == 0 || !absl::IsFailedPrecondition(session.status())) return session;
  // It may have joined the shard that had the slot before.
  return absl::UnavailableError(session.status().message());
}

void Shard::CloseStream(WorkerSession* session) {
  switch (membership_.StreamClosed(session)) {
    case Membership::AfterStream::kGoesOn:
      return;
    case Membership::AfterStream::kMayComeBack:
      if (failure().ok()) spdlog::info("worker {} has no connection left", session->rank());
      return;
    case Membership::AfterStream::kLost:
      WorkerLost(session->rank(), session->incarnation(), "its connection ended before it left");
  }
}

void Shard::WorkerLost(uint32_t rank, uint64_t incarnation, absl::string_view how) {
  const std::string worker = membership_.Describe(rank);
  if (failure().ok()) spdlog::warn("lost {}: {}", worker, std::string(how));
  if (view_ != 0) return;
  policy_->Leave(rank, incarnation);
  if (HasEnoughWorkers()) return;
  Fail(absl::UnavailableError(absl::StrCat(
      worker, " was lost: ", how, ", and ",
      config_.has_quorum() ? absl::StrCat("update.quorum needs ", config_.proto().update().quorum(),
                                          " of ", config_.workers(), " workers")
                           : "SYNC needs every worker")));
}

bool Shard::HasEnoughWorkers() const {
  if (!config_.is_synchronous()) return true;
  const int needed = config_.has_quorum() ? config_.proto().update().quorum() : config_.workers();
  return config_.workers() - membership_.CountLost() >= needed;
}

absl::Status Shard::Push(WorkerSession& session, Gradient gradient,
                         std::shared_ptr<ReplySink> sink) {
  ASSIGN_OR_RETURN(const int index, IndexOfPush(session, gradient.header, *store_, index_));
  return Take(index, session, std::move(gradient), std::move(sink));
}

absl::Status Shard::PushShared(WorkerSession& session, const GradientHeader& header,
                               std::shared_ptr<ReplySink> sink) {
  ASSIGN_OR_RETURN(const int index, IndexOfPush(session, header, *store_, index_));
  Gradient gradient{header, {}, session.buffers()};
  if (header.has_data()) {
    gradient.data = session.buffers()->GradientOf(config_, header.assigned.has_value(),
                                                  store_->chunks()[index].info());
  }
  return Take(index, session, std::move(gradient), std::move(sink));
}

absl::Status Shard::Take(int index, WorkerSession& session, Gradient gradient,
                         std::shared_ptr<ReplySink> sink) {
  RETURN_IF_ERROR(failure());
  // The stream ends with that, so that the worker pushes again, here or where the slot is then.
  RETURN_IF_ERROR(CheckHoldsRole());
  StoredChunk& chunk = store_->chunks()[index];
  RETURN_IF_ERROR(CheckFormat(config_, gradient, chunk.info()));
  // The memory of a repeated push may have another content already, which is not looked at.
  if (absl::Status finite = CheckFinite(config_, gradient, chunk);
      !finite.ok() && policy_->Counts(index, gradient.header)) {
    // Under SKIP, a worker leaves out such a gradient itself. If it does not, its push is refused,
    // and the run goes on.
    if (config_.proto().update().non_finite() == Update::REJECT) {
      finite = WithKind(ErrorDetail::RUN_FAILED, std::move(finite));
    }
    FailIfFatal(finite);
    return finite;
  }
  const absl::Status pushed = policy_->Push(index, session, std::move(gradient), std::move(sink));
  FailIfFatal(pushed);
  return pushed;
}

void Shard::CountReply(WorkerSession* session, uint64_t bytes) {
  store_->counters().CountReply(bytes);
  if (session != nullptr) session->CountReply(bytes);
}

void Shard::CheckWaits() {
  // With views, the coordinator decides which workers are lost.
  for (const Membership::Absence& absence :
       view_ == 0 ? membership_.LoseWithoutStream() : std::vector<Membership::Absence>()) {
    WorkerLost(absence.rank, absence.incarnation, absence.how);
  }
  snapshots_.ReleaseMemory();
  if (const absl::Status refused = this->refused(); !refused.ok()) Fail(refused);
  if (failed_) return;  // no update waits or goes on any more
  // The order of these two calls matters: a worker that has left before its push is found missing
  // will never push, but one whose push is found missing may push and leave right afterwards.
  const std::vector<uint32_t> left = membership_.HaveLeft();
  const PendingUpdates updates = policy_->PendingUpdates();
  // Under SSP nobody waits for a worker that has finished.
  const bool is_sync = config_.proto().update().policy() == Update::SYNC;
  if (const absl::Status status = CheckNoneHasFinished(updates, left, membership_);
      is_sync && !status.ok()) {
    return Fail(status);
  }
  const UpdatePolicy::Pending* const oldest = Oldest(updates);
  const bool any = oldest != nullptr;
  const absl::Time now = clock_->Now();
  const absl::Duration limit = config_.worker_patience();
  waited_for_coordinator_ = std::max(waited_for_coordinator_, WaitedForCoordinator(updates, now));
  if (any && std::max(oldest->since, waited_for_coordinator_) < now - limit) {
    Fail(absl::DeadlineExceededError(absl::StrCat(
        "chunk ", oldest->chunk, " of iteration ", oldest->iteration,
        " has waited longer than limits.exchange_seconds (", Rounded(now - oldest->since), ") for ",
        membership_.Describe(oldest->missing))));
    return;
  }
  const auto event = stall_log_.Observe(any ? std::optional(oldest->since) : std::nullopt, now);
  if (!event.has_value()) return;
  if (event->over) {
    spdlog::info("the exchange goes on after a wait of {}", Rounded(event->waited));
  } else {
    spdlog::warn("iteration {} has waited {} for {}", oldest->iteration, Rounded(event->waited),
                 membership_.Describe(oldest->missing));
  }
}

absl::Time Shard::WaitedForCoordinator(const PendingUpdates& updates, absl::Time now) const {
  absl::MutexLock lock(&view_mutex_);
  if (has_lost_slot_) return now;
  absl::Time until = absl::InfinitePast();
  if (view_ == 0) return until;
  for (const UpdatePolicy::Pending& update : updates) {
    for (const uint32_t rank : update.missing) {
      const RankHolder& holder = ranks_[rank];
      until = std::max(until, holder.incarnation == 0 ? now : holder.since);
    }
  }
  return until;
}

absl::Status Shard::failure() const {
  if (!failed_) return absl::OkStatus();
  absl::MutexLock lock(&failure_mutex_);
  return failure_;
}

void Shard::OnEnd(EndListener listener) { on_end_ = std::move(listener); }

void Shard::Fail(const absl::Status& failure) { End(WithKind(ErrorDetail::RUN_FAILED, failure)); }

void Shard::FailIfFatal(const absl::Status& status) {
  if (KindOf(status) == ErrorDetail::RUN_FAILED) Fail(status);
}

std::shared_ptr<ParameterStore> Shard::Retire(const absl::Status& reason) {
  End(reason);
  // Another thread may have ended the shard and not have come so far yet. Afterwards, nothing
  // changes the parameters, and no observer is called.
  policy_->Abandon();
  return store_;
}

void Shard::End(const absl::Status& reason) {
  if (!Close(reason)) return;
  if (on_end_) on_end_(reason);
  policy_->Abandon();
}

bool Shard::Close(const absl::Status& reason) {
  {
    absl::MutexLock lock(&failure_mutex_);
    if (failed_) return false;  // what follows from the first failure is not reported
    failure_ = reason;
    failed_ = true;
  }
  snapshots_.End(reason);
  return true;
}

bool Shard::IsOver() const {
  if (view_ == 0) return static_cast<int>(membership_.HaveLeft().size()) == config_.workers();
  absl::MutexLock lock(&view_mutex_);
  return is_over_in_view_;
}

ShardStats Shard::Stats() const {
  ShardStats stats;
  stats.set_shard(index_);
  stats.set_incarnation(incarnation_);
  stats.set_plan_fingerprint(config_.plan().fingerprint());
  stats.set_uptime_seconds(absl::ToDoubleSeconds(clock_->Now() - start_time_));
  stats.set_resident_bytes(ResidentBytes());
  stats.set_parameters(config_.plan().shard_parameters(index_));
  stats.set_parameter_bytes(config_.plan().shard_parameters(index_) * sizeof(float));
  stats.set_chunks(config_.plan().chunks_of_shard(index_).size());
  store_->counters().Fill(&stats);
  membership_.Fill(&stats);
  policy_->FillStats(&stats);
  if (has_failed()) stats.set_failure(Printable(failure().message()));
  snapshots_.FillProgress(stats.mutable_progress());
  FillWait(policy_->PendingUpdates(), clock_->Now(), &stats);
  return stats;
}

}  // namespace evenshard
