#include "common/control/view/view_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/config/config_contract.h"
#include "common/placement/declaration.h"

namespace evenshard {
namespace {

// How long a run whose slots could all be held waits for further ps processes before it begins.
constexpr absl::Duration kStartWait = absl::Seconds(3);

// How long until checkpoints that could not be read are tried again.
constexpr absl::Duration kReadPause = absl::Milliseconds(100);

// How many events a view tells.
constexpr size_t kToldEvents = 20;

bool IsSame(const View& a, const View& b) { return a.SerializeAsString() == b.SerializeAsString(); }

}  // namespace

ViewCoordinator::Settings ViewCoordinator::SettingsOf(const ClusterConfig& config,
                                                      uint64_t config_fingerprint) {
  return {.slots = config.shard_size(),
          .spares = config.recovery().spare_size(),
          .workers = config.workers(),
          .synchronous = IsSynchronous(config.update()),
          .recovery = config.recovery(),
          .startup = absl::Seconds(config.limits().startup_seconds()),
          .exchange = absl::Seconds(config.limits().exchange_seconds()),
          .config_fingerprint = config_fingerprint};
}

ViewCoordinator::ViewCoordinator(Settings settings, NewestCheckpoint newest_checkpoint, View last)
    : settings_(std::move(settings)),
      newest_checkpoint_(std::move(newest_checkpoint)),
      view_(std::move(last)),
      declaration_(view_.declaration()),
      processes_("ps", settings_.slots + settings_.spares),
      workers_("worker", settings_.workers),
      reachability_(absl::Seconds(settings_.recovery.silence_seconds()), &processes_, &workers_),
      slots_(settings_.slots, settings_.recovery.replicas() > 0,
             /*deposes=*/settings_.recovery.has_etcd(), &processes_, &reachability_, &events_),
      worker_set_({.synchronous = settings_.synchronous,
                   .worker_loss = settings_.recovery.worker_loss(),
                   .min_workers = static_cast<uint32_t>(settings_.recovery.min_workers()),
                   .startup = settings_.startup,
                   .silence = absl::Seconds(settings_.recovery.silence_seconds()),
                   .cut_every = settings_.recovery.checkpoint().has_every_seconds()
                                    ? absl::Seconds(settings_.recovery.checkpoint().every_seconds())
                                    : absl::InfiniteDuration()},
                  view_.number(), &workers_, &reachability_, &events_) {
  if (settings_.slots == 0) {
    ring_.emplace(
        RingMembers::Settings{.worker_loss = settings_.recovery.worker_loss(),
                              .min_workers = static_cast<size_t>(settings_.recovery.min_workers())},
        &workers_);
  }
  told_ = {view_.event().begin(), view_.event().end()};
  told_before_ = view_.events() - told_.size();
  const auto assume_alive = [](uint32_t index, uint64_t incarnation, const std::string& address,
                               StartTable* table) {
    ProcessState state;
    state.set_incarnation(incarnation);
    state.set_address(address);
    // A place without an incarnation is empty, and one that does not exist is ignored.
    table->Seen(index, state, absl::InfinitePast()).IgnoreError();
  };
  for (const SlotView& slot : view_.slot()) {
    for (const ProcessId& id : {slot.primary(), slot.replica()}) {
      assume_alive(id.process(), id.incarnation(), id.address(), &processes_);
    }
  }
  for (int r = 0; r < view_.worker_size(); ++r) {
    if (view_.worker(r).state() == WorkerView::LEAVING) continue;
    assume_alive(r, view_.worker(r).incarnation(), "", &workers_);
  }
}

absl::Status ViewCoordinator::Seen(const ProcessState& state, absl::Time now) {
  const bool is_ps = state.role_case() == ProcessState::kPs;
  if (!is_ps && state.role_case() != ProcessState::kWorker) {
    return absl::InvalidArgumentError("the process does not say what it is");
  }
  const std::string name =
      is_ps ? absl::StrCat("ps ", state.ps()) : absl::StrCat("worker ", state.worker());
  if (state.config_fingerprint() != settings_.config_fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat(name,
                     " has another config than the run that it wants to belong to, allowed: "
                     "the file and the --set with which the run began"));
  }
  if (state.has_declaration()) {
    // Worker 0's counts, or one that came early and is wrong would refuse all others.
    if (!declaration_.has_model() && state.worker() == 0) declaration_ = state.declaration();
    const std::string difference =
        declaration_.has_model() ? DeclarationDifference(declaration_, state.declaration()) : "";
    if (!difference.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " has another model than worker 0: in the run ", Printable(difference),
                       "; give all workers the same model"));
    }
  }
  absl::Status status =
      is_ps ? processes_.Seen(state.ps(), state, now) : workers_.Seen(state.worker(), state, now);
  if (!status.ok()) return status;
  if (is_ps) first_seen_ = std::min(first_seen_, now);
  if (!state.failure().empty()) Fail(absl::StrCat(name, ": ", Printable(state.failure())));
  Advance(now);
  return absl::OkStatus();
}

void ViewCoordinator::Gone(const Process& process, absl::string_view reason, absl::Time since,
                           absl::Time now) {
  StartTable& starts = process.is_worker ? workers_ : processes_;
  starts.Gone(process.index, process.incarnation, reason, since);
  Advance(now);
}

void ViewCoordinator::Tick(absl::Time now) { Advance(now); }

// Decides all that can be decided, and publishes the next view if it differs from the present one.
void ViewCoordinator::Advance(absl::Time now) {
  now_ = std::max(now_, now);
  if (!failure_.ok()) return;
  View next = view_;
  if (view_.number() == 0) {
    if (!MayBegin()) return;
    next.set_run(settings_.run);
    BeginGeneration(settings_.resume, &next);
  } else {
    const auto [loss, since] = Loss(&next);
    if (loss.empty()) {
      unreadable_since_ = absl::InfiniteFuture();
      slots_.Improve(now_, &next);
    } else if (absl::Status status = GoBack(loss, std::min(now_, since), &next); !status.ok()) {
      Fail(status.message());
      return;
    }
  }
  if (!next.finished()) {
    if (absl::Status status = UpdateWorkers(&next); !status.ok()) {
      Fail(status.message());
      return;
    }
  }
  if (declaration_.has_model()) *next.mutable_declaration() = declaration_;
  if (!IsSame(view_, next)) {
    next.set_number(view_.number() + 1);
    *next.mutable_event() = {told_.begin(), told_.end()};
    next.set_events(told_before_ + told_.size());
    view_ = std::move(next);
  }
  events_.Followed(SmallestFollowed(), now_);
}

std::pair<std::string, absl::Time> ViewCoordinator::Loss(View* next) {
  if (ring_.has_value()) {
    // Nobody needs a ring whose workers have all trained to the end.
    if (view_.finished()) return {"", absl::InfiniteFuture()};
    return {ring_->Loss(view_), ring_->LostSince(view_)};
  }
  reachability_.Note(view_, now_);
  LoseCutOff();
  slots_.ReplaceGone(view_, now_, next);
  std::string loss = slots_.loss();
  if (loss.empty()) loss = Unreadable();
  if (loss.empty() && !view_.finished()) loss = LostState();
  return {loss, slots_.lost_since()};
}

absl::Status ViewCoordinator::UpdateWorkers(View* next) {
  if (ring_.has_value()) {
    ring_->Update(next);
    next->set_finished(RingMembers::AllFinished(*next));
    return absl::OkStatus();
  }
  const auto position_of = [&](int slot) { return PositionOf(slot, *next); };
  absl::Status status = worker_set_.Update(view_, position_of, now_, next);
  // Without one of its slots the run has yet to go back.
  next->set_finished(slots_.loss().empty() && worker_set_.AllFinished(*next, now_));
  return status;
}

std::vector<RecoveryEvent> ViewCoordinator::TakeEvents() {
  std::vector<RecoveryEvent> events = events_.Take();
  for (const RecoveryEvent& event : events) {
    told_.push_back(event);
    if (told_.size() <= kToldEvents) continue;
    told_.pop_front();
    ++told_before_;
  }
  return events;
}

bool ViewCoordinator::MayBegin() const {
  bool all = true;
  for (int p = 0; p < processes_.size(); ++p) all = all && processes_.IsAlive(p);
  return all || (slots_.HasEnoughProcesses() && now_ >= first_seen_ + kStartWait);
}

// Declares a worker lost that cannot reach a slot, before the workers that wait for it time out.
// That is soon if the run can go on without it, and later if the slot can move to another process
// or its process may be dead with a lease that lasts.
void ViewCoordinator::LoseCutOff() {
  const Recovery::WorkerLoss loss = settings_.recovery.worker_loss();
  if (loss == Recovery::FAIL) return;
  const bool goes_on = worker_set_.GoesOnWithoutOne(view_);
  for (int s = 0; s < view_.slot_size(); ++s) {
    const bool waits = settings_.recovery.has_etcd() || slots_.CanMove(view_.slot(s), now_);
    const int times = waits ? 2 : 1;
    const absl::Time since =
        now_ - (goes_on ? times * reachability_.patience() : settings_.exchange / 2);
    const auto rank = reachability_.WorkerWithout(view_, s, since);
    if (!rank.has_value()) continue;
    reachability_.KeepOut(*rank, now_);
    workers_.Gone(*rank, view_.worker(*rank).incarnation(),
                  absl::StrCat("cannot reach ps ", view_.slot(s).primary().process()), since);
  }
}

// What a process says that cannot read the checkpoint of this generation; "" if there is none.
std::string ViewCoordinator::Unreadable() const {
  for (int p = 0; p < processes_.size() && !view_.checkpoint().empty(); ++p) {
    const ProcessState::Unreadable& unreadable = processes_[p].state.unreadable();
    if (!processes_.IsAlive(p) || unreadable.checkpoint() != view_.checkpoint()) continue;
    return absl::StrCat("ps ", p, " cannot read the checkpoint ", view_.checkpoint(), ": ",
                        Printable(unreadable.why()));
  }
  return "";
}

// What slot 0's primary says if nobody has what the workers had registered; "" otherwise.
std::string ViewCoordinator::LostState() const {
  const ProcessId& primary = view_.slot(0).primary();
  if (!processes_.IsAlive(primary) ||
      processes_[primary.process()].state.lost_state() != view_.generation()) {
    return "";
  }
  return "workers were started again, and nobody has the state that they need";
}

// Makes `next` begin a new generation because of a loss, unless the processes for it are not there
// yet.
absl::Status ViewCoordinator::GoBack(const std::string& loss, absl::Time since, View* next) {
  const bool has_checkpoints = settings_.recovery.has_checkpoint();
  if (ring_.has_value() && settings_.recovery.worker_loss() == Recovery::FAIL) {
    return absl::AbortedError(loss);
  }
  if (!has_checkpoints && !ring_.has_value()) {
    return absl::AbortedError(
        absl::StrCat(loss, ", and there are no checkpoints to go back to (recovery.checkpoint)"));
  }
  if (finished()) return absl::AbortedError(absl::StrCat(loss, ", after the training had ended"));
  if (!slots_.HasEnoughProcesses() || now_ < read_again_) return absl::OkStatus();
  // An error may pass. Until then, an older checkpoint would lose what need not be lost. Workers
  // wait meanwhile, also after the processes have tried for as long.
  const bool is_patient =
      now_ < unreadable_since_ + std::min(settings_.startup, settings_.exchange / 4);
  const absl::StatusOr<std::optional<Checkpoint>> newest =
      has_checkpoints ? newest_checkpoint_(!is_patient) : std::nullopt;
  // A checkpoint that the coordinator can read may become readable for the process later. If it
  // does not, an older one will not be readable either.
  const bool is_same = newest.ok() && newest->has_value() &&
                       (*newest)->name == view_.checkpoint() && !Unreadable().empty();
  if (!newest.ok() || is_same) {
    unreadable_since_ = std::min(unreadable_since_, now_);
    read_again_ = now_ + kReadPause;
    if (is_patient) return absl::OkStatus();
    if (is_same) return absl::AbortedError(loss);
    return absl::AbortedError(
        absl::StrCat(loss, ", and no checkpoint can be read: ", newest.status().message()));
  }
  unreadable_since_ = absl::InfiniteFuture();
  BeginGeneration(*newest, next);
  events_.AddUntil(
      view_.number() + 1,
      absl::StrCat(
          "went back to ",
          newest->has_value() ? absl::StrCat("the checkpoint of iteration ", (*newest)->trained)
          : has_checkpoints   ? "the initial parameters, since there is no complete checkpoint yet"
                              : "the initial parameters",
          ring_.has_value() ? absl::StrCat(" ", RingMembers::Size(*next)) : "", ", because ", loss),
      since);
  return absl::OkStatus();
}

void ViewCoordinator::BeginGeneration(const std::optional<Checkpoint>& checkpoint, View* next) {
  const uint64_t former = checkpoint.has_value() ? checkpoint->generation : 0;
  next->set_generation(std::max(next->generation(), former) + 1);
  next->set_checkpoint(checkpoint.has_value() ? checkpoint->name : "");
  const WorkerSetHistory history =
      checkpoint.has_value() ? checkpoint->worker_set : WorkerSetHistory();
  const uint64_t iteration = checkpoint.has_value() ? checkpoint->iteration : 0;
  if (ring_.has_value()) {
    ring_->BeginGeneration(history, iteration, next);
    return;
  }
  slots_.AssignAll(next);
  worker_set_.BeginGeneration(history, iteration, now_, next);
}

const ProcessState::Position* ViewCoordinator::PositionOf(int slot, const View& next) const {
  const SlotView& present = view_.slot(slot);
  // What the former primary says does not hold for one that takes over: gradients that have not led
  // to an update yet are lost with it.
  if (next.slot(slot).primary().process() != present.primary().process() ||
      !processes_.IsAlive(present.primary())) {
    return nullptr;
  }
  const ProcessState& state = processes_[present.primary().process()].state;
  if (state.view() != view_.number()) return nullptr;
  for (const ProcessState::Position& position : state.position()) {
    if (position.slot() == static_cast<uint32_t>(slot)) return &position;
  }
  return nullptr;
}

// The number of the newest view that every process with a role follows.
uint64_t ViewCoordinator::SmallestFollowed() const {
  uint64_t smallest = view_.number();
  if (ring_.has_value() && !RingMembers::IsFormed(view_)) return 0;
  for (const SlotView& slot : view_.slot()) {
    if (!slot.has_primary()) return 0;
    smallest = std::min(smallest, processes_[slot.primary().process()].state.view());
  }
  for (int r = 0; r < view_.worker_size(); ++r) {
    if (view_.worker(r).state() != WorkerView::MEMBER) continue;
    smallest = std::min(smallest, workers_[r].state.view());
  }
  return smallest;
}

void ViewCoordinator::Fail(absl::string_view reason) {
  if (failure_.ok()) failure_ = absl::AbortedError(reason);
}

}  // namespace evenshard
