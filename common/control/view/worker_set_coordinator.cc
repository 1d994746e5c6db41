#include "common/control/view/worker_set_coordinator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// At the start of a run, workers come one shortly after another. Each view interrupts all
// processes, so one view takes all workers that have come in this time.
constexpr absl::Duration kGather = absl::Milliseconds(100);

// The history of the worker set is in every view. When it has so many entries, lost workers are no
// longer taken back.
constexpr int kMostWorkerSets = 1000;

// From the iteration after the next one on: those until then may have begun already.
constexpr uint64_t kAheadOfJoin = 2;

bool IsAbsent(const WorkerView& worker) {
  return worker.state() == WorkerView::ABSENT || worker.state() == WorkerView::LOST;
}

void SetState(WorkerView::State state, uint64_t incarnation, WorkerView* worker) {
  worker->set_state(state);
  worker->set_incarnation(incarnation);
}

int Count(const View& view, WorkerView::State state) {
  return static_cast<int>(
      std::count_if(view.worker().begin(), view.worker().end(),
                    [&](const WorkerView& worker) { return worker.state() == state; }));
}

// The size of the smallest worker set from `iteration` on.
size_t SmallestWorkerSet(const WorkerSetHistory& history, uint64_t iteration) {
  size_t smallest = WorkerSetAt(history, iteration).size();
  for (const WorkerSet& worker_set : history) {
    if (worker_set.from_iteration() < iteration) continue;
    smallest = std::min<size_t>(smallest, worker_set.rank_size());
  }
  return smallest;
}

}  // namespace

WorkerSetCoordinator::WorkerSetCoordinator(Settings settings, uint64_t number,
                                           const StartTable* workers,
                                           const Reachability* reachability, EventLog* events)
    : settings_(settings),
      workers_(*workers),
      reachability_(*reachability),
      events_(*events),
      generation_began_(number),
      absence_(workers->size()),
      cut_pause_(settings_.cut_every) {}

bool WorkerSetCoordinator::ChangesWorkerSets() const {
  return settings_.synchronous && settings_.worker_loss == Recovery::CONTINUE;
}

bool WorkerSetCoordinator::GoesOnAsynchronously() const {
  return !settings_.synchronous && settings_.worker_loss == Recovery::CONTINUE;
}

std::string WorkerSetCoordinator::Fate(uint32_t rank) const {
  const std::string& reason = workers_[rank].reason;
  return absl::StrCat("worker ", rank, " ", reason.empty() ? "did not come" : reason);
}

void WorkerSetCoordinator::BeginGeneration(WorkerSetHistory history, uint64_t iteration,
                                           absl::Time now, View* next) {
  generation_began_ = next->number() + 1;
  next->set_worker_set_changes(false);
  next->set_cut_iteration(0);
  cut_pause_ = settings_.cut_every;
  const bool is_first = next->worker_set().empty();
  // Under ASYNC it is only the number of a checkpoint.
  if (history.empty() || !settings_.synchronous) iteration = 0;
  if (history.empty()) history.Add();
  CutWorkerSets(iteration, &history);
  for (int r = 0; r < workers_.size(); ++r) {
    WorkerView* worker = next->worker_size() > r ? next->mutable_worker(r) : next->add_worker();
    bool counts = is_first || IsInLastWorkerSet(next->worker_set(), r);
    absence_[r].is_waited_for = false;  // the others' absences are other ones now
    switch (worker->state()) {
      case WorkerView::FINISHED:
        SetState(WorkerView::ABSENT, 0, worker);
        absence_[r] = {now, /*was_lost=*/false};
        break;
      case WorkerView::LEAVING:
        SetState(WorkerView::ABSENT, 0, worker);
        counts = false;
        break;
      case WorkerView::LOST:
        SetState(WorkerView::ABSENT, 0, worker);
        break;
      case WorkerView::JOINING:
        worker->set_state(WorkerView::MEMBER);
        counts = true;
        break;
      default:
        break;
    }
    if (counts) {
      AddToWorkerSet(r, iteration, &history);
    } else {
      RemoveFromWorkerSet(r, iteration, &history);
    }
  }
  *next->mutable_worker_set() = std::move(history);
}

absl::Status WorkerSetCoordinator::Update(const View& view, const PositionOf& position_of,
                                          absl::Time now, View* next) {
  if (absl::Status failure = NoteLosses(view.number(), now, next); !failure.ok()) return failure;
  NoteFinished(next);
  Admit(now, next);
  if (next->worker_set_changes()) {
    // The positions are those of the present view, and a change of it goes first.
    if (view.worker_set_changes() && FinishChange(view, position_of, now, next))
      return absl::OkStatus();
    if (Count(*next, WorkerView::JOINING) + Count(*next, WorkerView::LEAVING) == 0 &&
        settings_.cut_every == absl::InfiniteDuration()) {
      next->set_worker_set_changes(false);
    }
    return absl::OkStatus();
  }
  // The run gets to work between two changes.
  if (view.worker_set_changes()) return absl::OkStatus();
  if (ChangesWorkerSets()) BeginChange(now, next);
  if (settings_.synchronous && !next->worker_set_changes()) OrderCut(now, next);
  return absl::OkStatus();
}

absl::Status WorkerSetCoordinator::NoteLosses(uint64_t number, absl::Time now, View* next) {
  for (int r = 0; r < workers_.size(); ++r) {
    WorkerView* worker = next->mutable_worker(r);
    const bool there =
        worker->state() == WorkerView::MEMBER || worker->state() == WorkerView::JOINING;
    if (there && workers_[r].present != worker->incarnation()) {
      if (settings_.worker_loss == Recovery::FAIL) return absl::AbortedError(Fate(r));
      if (worker->state() == WorkerView::MEMBER) {
        absence_[r] = {workers_[r].gone_since, /*was_lost=*/true};
      }
      SetState(WorkerView::ABSENT, 0, worker);
    }
    if (worker->state() != WorkerView::ABSENT) continue;
    absence_[r].since = std::min(absence_[r].since, now);
    if (GoesOnAsynchronously() && IsGivenUp(r, now)) SetState(WorkerView::LOST, 0, worker);
  }
  return absl::OkStatus();
}

void WorkerSetCoordinator::NoteFinished(View* next) const {
  for (int r = 0; r < workers_.size(); ++r) {
    WorkerView* worker = next->mutable_worker(r);
    const StartTable::Process& process = workers_[r];
    if (worker->incarnation() != 0 && worker->incarnation() == process.present &&
        process.state.finished() && process.state.view() >= generation_began_) {
      worker->set_state(WorkerView::FINISHED);
    }
  }
}

void WorkerSetCoordinator::Admit(absl::Time now, View* next) {
  std::vector<uint32_t> came;
  int absent = 0;
  for (int r = 0; r < workers_.size(); ++r) {
    if (!IsAbsent(next->worker(r)) || !IsInLastWorkerSet(next->worker_set(), r)) continue;
    if (workers_.IsAlive(r)) {
      came.push_back(r);
    } else {
      ++absent;
    }
  }
  if (came.empty() || (absent > 0 && now < admitted_ + kGather)) return;
  admitted_ = now;
  cut_pause_ = settings_.cut_every;
  for (const uint32_t rank : came) {
    SetState(WorkerView::MEMBER, workers_[rank].present, next->mutable_worker(rank));
    if (absence_[rank].was_lost) {
      events_.AddUntil(next->number() + 1,
                       absl::StrCat(Fate(rank), "; its replacement goes on in its place"),
                       absence_[rank].since);
    }
    absence_[rank] = {};
  }
}

bool WorkerSetCoordinator::FinishChange(const View& view, const PositionOf& position_of,
                                        absl::Time now, View* next) {
  std::vector<uint32_t> leaving;
  std::vector<uint32_t> joining;
  for (int r = 0; r < workers_.size(); ++r) {
    if (next->worker(r).state() == WorkerView::LEAVING) leaving.push_back(r);
    if (next->worker(r).state() == WorkerView::JOINING) joining.push_back(r);
  }
  uint64_t first = UINT64_MAX;
  uint64_t farthest = 0;
  uint64_t assignments = 0;
  uint64_t reached = UINT64_MAX;  // each slot has a chunk that has come so far
  for (int slot = 0; slot < view.slot_size(); ++slot) {
    const ProcessState::Position* position = position_of(slot);
    if (position == nullptr) return false;
    first = std::min(first, position->least_iteration());
    farthest = std::max(farthest, position->iteration());
    reached = std::min(reached, position->iteration());
    assignments = std::max(assignments, position->assignments());
  }
  std::vector<bool> is_waited_for(leaving.size());
  for (size_t i = 0; i < leaving.size(); ++i) {
    SetState(WorkerView::ABSENT, 0, next->mutable_worker(leaving[i]));
    WorkerSetHistory without = next->worker_set();
    RemoveFromWorkerSet(leaving[i], first + 1, &without);
    // Workers that join later do not help an iteration that has no other worker. The initial
    // parameters of a model that workers have declared are worker 0's.
    is_waited_for[i] =
        SmallestWorkerSet(without, first + 1) < std::max<size_t>(settings_.min_workers, 1) ||
        (leaving[i] == 0 && first == 0 && view.has_declaration());
    absence_[leaving[i]].is_waited_for = is_waited_for[i];
    if (!is_waited_for[i]) *next->mutable_worker_set() = std::move(without);
  }
  for (const uint32_t rank : joining) {
    AddToWorkerSet(rank, farthest + kAheadOfJoin, next->mutable_worker_set());
    next->mutable_worker(rank)->set_state(WorkerView::MEMBER);
  }
  for (WorkerSet& worker_set : *next->mutable_worker_set()) {
    if (worker_set.from_iteration() > first) worker_set.set_assignments(assignments);
  }
  next->set_worker_set_changes(false);
  if (leaving.empty() && joining.empty()) {
    cut_ordered_ = now;
    // A cut that some slot has not begun stays where it is. Each order has workers push again, so
    // orders that come faster than iterations would keep everybody from the cut: they get rarer.
    const bool is_reached = reached >= next->cut_iteration();
    cut_pause_ = is_reached ? settings_.cut_every : 2 * cut_pause_;
    if (!is_reached) return true;
    next->set_cut_iteration(farthest + kAheadOfJoin);
    next->set_cuts(next->cuts() + 1);
    return true;
  }

  const size_t left = LastWorkerSet(next->worker_set()).size();
  const std::string with = absl::StrCat(left, left == 1 ? " worker" : " workers");
  for (size_t i = 0; i < leaving.size(); ++i) {
    if (is_waited_for[i]) continue;  // Admit tells it
    events_.AddUntil(
        view.number() + 1,
        absl::StrCat(Fate(leaving[i]), "; the run goes on with ", with, " from iteration ",
                     first + 1 - std::min(first, assignments), " on"),
        absence_[leaving[i]].since);
  }
  for (const uint32_t rank : joining) {
    events_.Add(absl::StrCat("worker ", rank, " is back; the run goes on with ", with,
                             " from iteration ", farthest + kAheadOfJoin - assignments, " on"),
                now);
    absence_[rank] = {};
  }
  return true;
}

// Losses come before joins, and all losses that are known go together.
void WorkerSetCoordinator::BeginChange(absl::Time now, View* next) {
  for (const SlotView& slot : next->slot()) {
    if (!slot.has_primary() || slot.handing_over()) return;
  }
  size_t left = LastWorkerSet(next->worker_set()).size();
  for (int r = 0; r < workers_.size(); ++r) {
    WorkerView* worker = next->mutable_worker(r);
    if (worker->state() != WorkerView::ABSENT || !IsInLastWorkerSet(next->worker_set(), r) ||
        !IsGivenUp(r, now) || absence_[r].is_waited_for ||
        left - 1 < std::max<uint32_t>(settings_.min_workers, 1)) {
      continue;
    }
    --left;
    const StartTable::Process& process = workers_[r];
    SetState(WorkerView::LEAVING, process.gone.empty() ? 0 : process.gone.back(), worker);
    next->set_worker_set_changes(true);
  }
  if (next->worker_set_changes()) return;
  // When some have trained to the end, there is nothing left to join for.
  if (Count(*next, WorkerView::FINISHED) > 0 || next->worker_set_size() >= kMostWorkerSets) return;
  for (int r = 0; r < workers_.size(); ++r) {
    WorkerView* worker = next->mutable_worker(r);
    if (worker->state() != WorkerView::ABSENT || IsInLastWorkerSet(next->worker_set(), r) ||
        !workers_.IsAlive(r) || reachability_.IsOut(r, now)) {
      continue;
    }
    SetState(WorkerView::JOINING, workers_[r].present, worker);
    next->set_worker_set_changes(true);
  }
}

void WorkerSetCoordinator::OrderCut(absl::Time now, View* next) {
  if (cut_ordered_ == absl::InfinitePast()) cut_ordered_ = now;  // the first is due after a while
  if (now < cut_ordered_ + cut_pause_ || Count(*next, WorkerView::FINISHED) > 0) return;
  for (const SlotView& slot : next->slot()) {
    if (!slot.has_primary() || slot.handing_over()) return;
  }
  next->set_worker_set_changes(true);
}

bool WorkerSetCoordinator::GoesOnWithoutOne(const View& view) const {
  return ChangesWorkerSets() &&
         Count(view, WorkerView::MEMBER) > static_cast<int>(std::max(settings_.min_workers, 1u));
}

bool WorkerSetCoordinator::IsGivenUp(uint32_t rank, absl::Time now) const {
  return !workers_.IsAlive(rank) &&
         (absence_[rank].was_lost || now >= absence_[rank].since + settings_.startup);
}

bool WorkerSetCoordinator::AllFinished(const View& view, absl::Time now) const {
  if (Count(view, WorkerView::FINISHED) == 0) return false;
  for (const uint32_t rank : LastWorkerSet(view.worker_set())) {
    if (view.worker(rank).state() == WorkerView::FINISHED) continue;
    const bool given_up = GoesOnAsynchronously() && IsAbsent(view.worker(rank)) &&
                          now >= absence_[rank].since + settings_.silence;
    if (!given_up) return false;
  }
  return true;
}

}  // namespace evenshard
