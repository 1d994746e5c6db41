#include "worker/exchange/core/exchange_core.h"

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/text.h"
#include "common/control/view/view_check.h"
#include "common/control/view/worker_set.h"
#include "common/placement/plan/plan.h"
#include "spdlog/spdlog.h"

namespace evenshard {
namespace {

constexpr absl::Duration kShortestTick = absl::Milliseconds(10);

}  // namespace

ExchangeCore::ExchangeCore(const Options& options)
    : config_(*options.config),
      options_(options),
      round_({.config = options.config,
              .rank = options.rank,
              .incarnation = options.incarnation,
              .shard_name = [this](int slot) { return SlotName(slot); },
              .wake = [this](int slot) { options_.transport->Wake(slot); },
              .trace = options.trace,
              .while_waiting = options.while_waiting}),
      patience_(SlotPatience::Of(config_.proto(), options.has_views, round_.limit())),
      links_({.config = options.config,
              .rank = options.rank,
              .incarnation = options.incarnation,
              .clock = options.clock,
              .transport = options.transport,
              .round = &round_,
              .has_views = options.has_views,
              .process = options.process,
              .patience = patience_}) {
  tick_period_ = std::min(round_.watch_period(), patience_.startup / 10);
  if (patience_.reconnect > absl::ZeroDuration()) {
    tick_period_ = std::min(tick_period_, patience_.reconnect / 10);
  }
  // What it says of slots that it cannot reach is never much older than the truth.
  if (patience_.has_views) tick_period_ = std::min(tick_period_, patience_.quiet / 2);
  tick_period_ = std::max(tick_period_, kShortestTick);
}

void ExchangeCore::Start() {
  std::vector<int> wake;
  {
    absl::MutexLock lock(&mutex_);
    started_ = options_.clock->Now();
    if (has_failed_) return;
    if (options_.has_views) {
      stage_ = Stage::kWaiting;
      if (view_.number() > 0) wake = Adopt();
    } else {
      stage_ = Stage::kJoining;
      links_.MoveTo(options_.addresses);
      ConnectSlots();
    }
  }
  for (const int slot : wake) options_.transport->Wake(slot);
}

void ExchangeCore::OnView(const View& view) {
  std::vector<int> wake;
  {
    absl::MutexLock lock(&mutex_);
    if (stage_ == Stage::kStopped || view.number() <= view_.number()) return;
    if (const absl::Status fits = CheckView(view, config_.shards(), config_.workers());
        !fits.ok()) {
      return FailLocked(fits);
    }
    if (view_.number() == 0 && !view.finished() && options_.rank < view.worker_size() &&
        view.worker(options_.rank).state() == WorkerView::FINISHED) {
      spdlog::info("worker {} has finished in this run; waits for the run to go back or to end",
                   options_.rank);
    }
    view_ = view;
    if (stage_ != Stage::kIdle) wake = Adopt();
  }
  for (const int slot : wake) options_.transport->Wake(slot);
}

void ExchangeCore::OnEnd(const absl::Status& reason) {
  absl::MutexLock lock(&mutex_);
  is_dismissed_ = true;
  FailLocked(reason);
}

WorkerView::State ExchangeCore::OwnState() const {
  if (options_.rank >= view_.worker_size()) return WorkerView::ABSENT;
  const WorkerView& self = view_.worker(options_.rank);
  return self.incarnation() == options_.incarnation ? self.state() : WorkerView::ABSENT;
}

std::vector<int> ExchangeCore::Adopt() {
  if (has_failed_) return {};
  if (generation_ != 0 && view_.generation() != generation_) {
    is_member_ = false;  // one that had finished is taken in anew
    if (stage_ == Stage::kRunning || stage_ == Stage::kLeaving) {
      const std::string to = view_.checkpoint().empty()
                                 ? "the initial parameters"
                                 : absl::StrCat("checkpoint ", view_.checkpoint());
      FailLocked(WithKind(ErrorDetail::WENT_BACK,
                          absl::AbortedError(absl::StrCat("the run goes back to ", to, " (view ",
                                                          view_.number(), ")"))));
      links_.Forget();
      generation_ = 0;
      stage_ = Stage::kWentBack;
      says_finished_ = false;
      return {};
    }
    links_.Forget();
    generation_ = 0;
    stage_ = Stage::kWaiting;
  }
  const WorkerView::State state = OwnState();
  if (state == WorkerView::FINISHED) {
    is_finished_ = stage_ == Stage::kLeaving && view_.finished();
    return {};
  }
  if (state != WorkerView::MEMBER) {
    is_dismissed_ = view_.finished() || (is_member_ && state != WorkerView::JOINING);
    if (is_dismissed_) {
      FailLocked(absl::FailedPreconditionError(
          absl::StrCat(view_.finished() ? "the training has ended without this worker"
                                        : "the run counts this worker as lost",
                       " (view ", view_.number(), ")")));
    }
    return {};
  }
  is_member_ = true;
  if (stage_ == Stage::kWaiting) {
    stage_ = Stage::kJoining;
    generation_ = view_.generation();
  }
  const auto is_absent = [this](uint32_t rank) ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return view_.worker(static_cast<int>(rank)).state() == WorkerView::ABSENT;
  };
  const auto is_lost = [](const SlotView& slot) { return !slot.has_primary(); };
  round_.Follow(view_.number(), absl::c_any_of(view_.slot(), is_lost) ||
                                    (!view_.worker_set().empty() &&
                                     absl::c_any_of(LastWorkerSet(view_.worker_set()), is_absent)));
  std::vector<int> wake = links_.Follow(view_, /*is_leaving=*/stage_ == Stage::kLeaving);
  ConnectSlots();
  CheckCatchUp();
  return wake;
}

void ExchangeCore::ConnectSlots() {
  if (stage_ != Stage::kJoining && stage_ != Stage::kRunning) return;
  links_.Connect(/*until_joined=*/stage_ == Stage::kJoining);
}

void ExchangeCore::Connected(int slot, uint64_t attempt, const JoinResponse& response) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<bool> accepted = links_.Accept(slot, attempt, response);
    if (!accepted.ok()) FailLocked(accepted.status());
    if (!accepted.ok() || !*accepted) return;
    if (stage_ == Stage::kJoining) {
      ConnectSlots();
      if (!links_.AllJoined()) return;
      if (const absl::Status begun = BeginRunning(); !begun.ok()) FailLocked(begun);
    }
  }
  options_.transport->Wake(slot);
}

absl::Status ExchangeCore::BeginRunning() {
  const auto [least, most] = links_.StartRange();
  const Update& update = config_.proto().update();
  const bool is_sync = config_.is_synchronous();
  // A worker that was lost in the middle of an iteration has pushed it to some slots only. Under
  // SSP each slot says where the slowest of the others is there.
  const uint64_t apart = 1 + std::max(update.staleness(), 0);
  // Under QUORUM the run goes on while this worker joins.
  if (!options_.has_views && !config_.has_quorum() &&
      most->start_iteration() > least->start_iteration() + apart) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the shards are not of one run: ", most->name(),
        " has taken this worker's iterations before ", most->start_iteration(), ", ", least->name(),
        " those before ", least->start_iteration(), "; start all shards again"));
  }
  const bool begins_at_least = is_sync || config_.IsInitial(least->start_iteration());
  const SlotLink* const from_slot = begins_at_least ? least : most;
  uint64_t start = from_slot->start_iteration();
  catch_up_.reset();
  if (options_.has_views && is_sync) {
    if (view_.worker_set().empty() || !IsInLastWorkerSet(view_.worker_set(), options_.rank)) {
      return absl::InternalError(absl::StrCat("view ", view_.number(), " has worker ",
                                              options_.rank,
                                              " as a member and not in its worker set"));
    }
    const uint64_t from = InWorkerSetSince(view_.worker_set(), options_.rank);
    if (start < from) {
      start = from;
      catch_up_ = from - 1;
    }
  }
  // The answers to an exchange without a contribution have what the first one may miss no more.
  if (update.policy() == Update::SSP && start > static_cast<uint64_t>(update.staleness())) {
    catch_up_ = start - 1;
  }
  // The answers of a catch-up say it for the iteration after it.
  round_.StartAt(start, from_slot->assignments());
  stage_ = Stage::kRunning;
  has_started_ = true;
  CheckCatchUp();
  return absl::OkStatus();
}

void ExchangeCore::CheckCatchUp() {
  // Under SSP the shards wait for none that has finished.
  if (stage_ != Stage::kRunning || !catch_up_.has_value() || !config_.is_synchronous()) {
    return;
  }
  // Workers that join with this one wait for the same iteration. If no other worker of it stays,
  // the shards answer by themselves.
  bool all_finished = false;
  for (const uint32_t rank : WorkerSetAt(view_.worker_set(), *catch_up_)) {
    if (!IsInLastWorkerSet(view_.worker_set(), rank)) continue;
    if (view_.worker(static_cast<int>(rank)).state() != WorkerView::FINISHED) return;
    all_finished = true;
  }
  if (all_finished) round_.SetAbandoned(true);
}

void ExchangeCore::Broken(int slot, uint64_t attempt, const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!links_.IsCurrent(slot, attempt)) return;
  if (has_failed_ || (stage_ != Stage::kJoining && stage_ != Stage::kRunning)) return;
  if (const absl::Status again = links_.Break(slot, status); !again.ok()) FailLocked(again);
}

bool ExchangeCore::Tick() {
  absl::MutexLock lock(&mutex_);
  CheckWaits();
  std::vector<uint32_t> unreachable = Unreachable();
  const bool is_news = unreachable != told_unreachable_;
  told_unreachable_ = std::move(unreachable);
  return is_news;
}

std::vector<uint32_t> ExchangeCore::Unreachable() const {
  const bool connects = stage_ == Stage::kJoining || stage_ == Stage::kRunning;
  return connects ? links_.Unreachable() : std::vector<uint32_t>();
}

void ExchangeCore::CheckWaits() {
  has_failed_ = has_failed_ || !round_.failure().ok();
  if (has_failed_) return;
  if (stage_ == Stage::kWaiting && view_.number() == 0) {
    if (options_.clock->Now() - started_ < patience_.startup) return;
    FailLocked(absl::DeadlineExceededError(absl::StrCat(
        "the coordinator has not said within ", absl::ToDoubleSeconds(patience_.startup),
        " s where the shards are (limits.startup_seconds)")));
  } else if (stage_ == Stage::kJoining || stage_ == Stage::kRunning) {
    if (const absl::Status missed = links_.Check(); !missed.ok()) FailLocked(missed);
  }
}

void ExchangeCore::Fail(const absl::Status& failure) {
  absl::MutexLock lock(&mutex_);
  FailLocked(failure);
}

void ExchangeCore::FailLocked(const absl::Status& failure) {
  if (stage_ == Stage::kWentBack) {
    later_failure_.Update(failure);
    return;
  }
  round_.Fail(failure);
  has_failed_ = true;
}

void ExchangeCore::Resume() {
  std::vector<int> wake;
  {
    absl::MutexLock lock(&mutex_);
    if (stage_ != Stage::kWentBack) return;
    round_.Reset();
    has_failed_ = is_finished_ = false;
    catch_up_.reset();
    stage_ = Stage::kWaiting;
    if (!later_failure_.ok()) FailLocked(later_failure_);
    wake = Adopt();
  }
  for (const int slot : wake) options_.transport->Wake(slot);
}

void ExchangeCore::BeginLeave(const absl::Status& outcome) {
  if (!outcome.ok() || !options_.has_views) return Stop(outcome);
  absl::MutexLock lock(&mutex_);
  if (stage_ != Stage::kRunning) return;
  stage_ = Stage::kLeaving;
}

LeaveRequest ExchangeCore::LeaveMessage(const absl::Status& outcome) const {
  LeaveRequest request;
  request.set_worker(options_.rank);
  request.set_incarnation(options_.incarnation);
  request.set_error(Printable(outcome.message()));
  absl::MutexLock lock(&mutex_);
  request.set_before_start(!has_started_);
  return request;
}

void ExchangeCore::EndLeave() {
  absl::MutexLock lock(&mutex_);
  if (stage_ != Stage::kLeaving) return;
  says_finished_ = true;
}

void ExchangeCore::Stop(const absl::Status& outcome) {
  absl::MutexLock lock(&mutex_);
  // What it has failed with is past, if the run has gone back.
  const bool is_past = std::exchange(stage_, Stage::kStopped) == Stage::kWentBack;
  if (!outcome.ok() && !absl::IsCancelled(outcome) && !is_dismissed_ && !is_past) {
    gave_up_ = Printable(outcome.message());
  }
}

SlotPull ExchangeCore::StartPull() const {
  return SlotPull(options_.clock, options_.has_views ? round_.limit() : patience_.reconnect);
}

std::string ExchangeCore::PrimaryInView(int slot) const {
  absl::MutexLock lock(&mutex_);
  return slot < view_.slot_size() ? view_.slot(slot).primary().address() : "";
}

ExchangeCore::CatchUp ExchangeCore::catch_up() const {
  absl::MutexLock lock(&mutex_);
  return {.iteration = catch_up_, .abandoned = round_.is_abandoned()};
}

void ExchangeCore::EndCatchUp() {
  absl::MutexLock lock(&mutex_);
  catch_up_.reset();
  round_.SetAbandoned(false);
}

std::vector<WorkerSet> ExchangeCore::worker_sets() const {
  if (options_.has_views && config_.is_synchronous()) {
    absl::MutexLock lock(&mutex_);
    return {view_.worker_set().begin(), view_.worker_set().end()};
  }
  std::vector<WorkerSet> worker_sets(1);
  for (int rank = 0; rank < config_.workers(); ++rank) worker_sets[0].add_rank(rank);
  return worker_sets;
}

ProcessState ExchangeCore::State() const {
  ProcessState state;
  state.set_worker(options_.rank);
  state.set_incarnation(options_.incarnation);
  state.set_config_fingerprint(config_.run_fingerprint());
  if (config_.is_from_workers()) *state.mutable_declaration() = config_.declaration();
  absl::MutexLock lock(&mutex_);
  state.set_view(view_.number());
  state.set_finished(says_finished_);
  state.set_failure(gave_up_);
  for (const uint32_t slot : Unreachable()) state.add_unreachable(slot);
  return state;
}

absl::Status ExchangeCore::AwaitReady() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_failed_ || stage_ == Stage::kRunning;
  };
  mutex_.Await(absl::Condition(&over));
  return round_.failure();
}

absl::Status ExchangeCore::AwaitFinished() {
  absl::MutexLock lock(&mutex_);
  const auto over = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_failed_ || is_finished_;
  };
  mutex_.Await(absl::Condition(&over));
  return is_finished_ ? absl::OkStatus() : round_.failure();
}

absl::Status ExchangeCore::AwaitConnected(int slot) {
  absl::MutexLock lock(&mutex_);
  const auto over = [this, slot]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_failed_ || links_.IsConnected(slot);
  };
  mutex_.Await(absl::Condition(&over));
  return round_.failure();
}

}  // namespace evenshard
