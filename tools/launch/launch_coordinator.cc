#include "tools/launch/launch_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/control/view/worker_set.h"

namespace evenshard {
namespace {

ProcessRole RoleOf(const ProcessState& state) {
  const bool is_worker = state.role_case() == ProcessState::kWorker;
  return {is_worker, is_worker ? state.worker() : state.ps()};
}

// How long the workers wait for a view that some shard has not confirmed.
constexpr absl::Duration kShardsFirst = absl::Milliseconds(100);

}  // namespace

LaunchCoordinator::LaunchCoordinator(ViewCoordinator::Settings settings,
                                     ViewCoordinator::NewestCheckpoint newest_checkpoint,
                                     const Clock* clock)
    : recovery_(settings.recovery),
      is_ring_(settings.slots == 0),
      silence_(absl::Seconds(settings.recovery.silence_seconds())),
      first_silence_(std::max({silence_, settings.startup, settings.exchange})),
      clock_(*clock),
      coordinator_(std::move(settings), std::move(newest_checkpoint)),
      may_have_work_left_(is_ring_) {}

void LaunchCoordinator::WorkersArePrograms() {
  absl::MutexLock lock(&mutex_);
  are_programs_ = true;
  may_have_work_left_ = true;
}

View LaunchCoordinator::view() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.view();
}

bool LaunchCoordinator::heard_worker() const {
  absl::MutexLock lock(&mutex_);
  return heard_worker_;
}

absl::Status LaunchCoordinator::Heard(Follower* follower, const ProcessState& state) {
  absl::MutexLock lock(&mutex_);
  const ProcessRole role = RoleOf(state);
  const auto place = places_.find(role);
  // What a process has said before it ended may arrive afterwards.
  if (place != places_.end() && !place->second.runs) {
    return absl::FailedPreconditionError("this process has ended");
  }
  const absl::Time now = clock_.Now();
  if (absl::Status status = coordinator_.Seen(state, now); !status.ok()) return status;
  heard_worker_ |= role.is_worker;
  if (place != places_.end()) {
    place->second.state = state;
    place->second.heard = now;
  }
  if (followers_.emplace(follower, role.is_worker).second) {
    if (coordinator_.view().number() > 0) follower->Send(coordinator_.view());
  }
  Publish();
  return absl::OkStatus();
}

void LaunchCoordinator::Forget(Follower* follower) {
  absl::MutexLock lock(&mutex_);
  followers_.erase(follower);
}

void LaunchCoordinator::Publish() {
  const View& view = coordinator_.view();
  const auto send = [&](bool to_workers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const auto& [follower, is_worker] : followers_) {
      if (is_worker == to_workers) follower->Send(view);
    }
  };
  if (published_ != view.number()) {
    published_ = view.number();
    published_at_ = clock_.Now();
    send(/*to_workers=*/false);
  }
  if (worker_view_ == published_) return;
  if (!ShardsFollow() && clock_.Now() < published_at_ + kShardsFirst) return;
  worker_view_ = published_;
  send(/*to_workers=*/true);
}

bool LaunchCoordinator::ShardsFollow() const {
  const auto follows = [this](const ProcessId& process) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto place = places_.find({.is_worker = false, .index = process.process()});
    return process.incarnation() == 0 || place == places_.end() ||
           place->second.state.view() >= published_;
  };
  for (const SlotView& slot : coordinator_.view().slot()) {
    if (!follows(slot.primary()) || !follows(slot.replica())) return false;
  }
  return true;
}

void LaunchCoordinator::Started(ProcessRole role) {
  absl::MutexLock lock(&mutex_);
  places_[role] = {.runs = true, .heard = clock_.Now()};
}

RecoveryHost::Verdict LaunchCoordinator::Ended(ProcessRole role, absl::string_view reason,
                                               bool by_signal, bool success) {
  absl::MutexLock lock(&mutex_);
  Place& place = places_[role];
  const absl::Time now = clock_.Now();
  place.runs = false;
  const bool had_finished = HasFinished(role, place);
  if (place.ordered_killed) {
    Gone(role,
         absl::StrCat("was silent for ", FormatSeconds(recovery_.silence_seconds()),
                      " and was killed"),
         place.heard);
  } else {
    Gone(role, reason, now);
  }
  Publish();
  if (!coordinator_.failure().ok()) return Verdict::kFailure;
  if (!role.is_worker) {
    const bool recovers = recovery_.replicas() > 0 || recovery_.has_checkpoint();
    return recovers ? Verdict::kRestart : Verdict::kFailure;
  }
  const bool fails =
      !success && (had_finished ? !by_signal : recovery_.worker_loss() == Recovery::FAIL);
  if (coordinator_.finished()) {
    const bool has_failed = had_finished && (fails || (may_have_work_left_ && !success));
    return has_failed ? Verdict::kFailure : Verdict::kDone;
  }
  // The others have made a ring without it.
  if (is_ring_ && coordinator_.view().number() > 0 &&
      !IsInLastWorkerSet(coordinator_.view().worker_set(), role.index)) {
    return Verdict::kDone;
  }
  // Programs that join no run succeed by themselves.
  if (success && !heard_worker_) return Verdict::kDone;
  // One that had finished waits for the end in its successor too, since the run may go back.
  return fails ? Verdict::kFailure : Verdict::kRestart;
}

bool LaunchCoordinator::HasFinished(ProcessRole role, const Place& place) const {
  if (!role.is_worker || coordinator_.view().number() == 0) return false;
  const WorkerView& worker = coordinator_.view().worker(static_cast<int>(role.index));
  return worker.state() == WorkerView::FINISHED &&
         worker.incarnation() == place.state.incarnation();
}

void LaunchCoordinator::Gone(ProcessRole role, absl::string_view reason, absl::Time since) {
  const uint64_t incarnation = places_[role].state.incarnation();
  if (incarnation == 0) return;
  coordinator_.Gone({role.is_worker, role.index, incarnation}, reason, since, clock_.Now());
}

absl::Status LaunchCoordinator::failure() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.failure();
}

RecoveryHost::Orders LaunchCoordinator::Poll() {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  coordinator_.Tick(now);
  Publish();
  Orders orders;
  orders.events = coordinator_.TakeEvents();
  orders.finished = coordinator_.finished();
  // If this process could not run for a while, it has not heard what the others said.
  const bool was_away = polled_ != absl::InfinitePast() && now > polled_ + silence_ / 2;
  polled_ = now;
  for (auto& [role, place] : places_) {
    if (was_away) place.heard = std::max(place.heard, now);
    // A program says nothing any more when it has left the run, and may still have work to do.
    const bool has_left = orders.finished && HasFinished(role, place);
    const bool is_heard = place.state.incarnation() != 0;
    const bool may_be_silent = has_left || (!is_heard && role.is_worker && are_programs_);
    if (place.runs && !place.ordered_killed && !may_be_silent &&
        now > place.heard + (is_heard ? silence_ : first_silence_)) {
      place.ordered_killed = true;
      orders.kill.push_back(role);
    }
    if (orders.finished && role.is_worker && place.runs && !HasFinished(role, place)) {
      orders.end.push_back(role);
    }
  }
  return orders;
}

}  // namespace evenshard
