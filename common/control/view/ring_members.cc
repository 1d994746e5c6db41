#include "common/control/view/ring_members.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

constexpr size_t kSmallestRing = 2;

bool AllAre(const View& view, const std::vector<WorkerView::State>& states) {
  const auto ranks = LastWorkerSet(view.worker_set());
  return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
    const WorkerView::State state = view.worker(static_cast<int>(rank)).state();
    return std::find(states.begin(), states.end(), state) != states.end();
  });
}

}  // namespace

RingMembers::RingMembers(const Settings& settings, const StartTable* workers)
    : settings_{settings.worker_loss, std::max(settings.min_workers, kSmallestRing)},
      workers_(*workers) {}

std::vector<uint32_t> RingMembers::Lost(const View& view) const {
  std::vector<uint32_t> lost;
  const auto ranks = LastWorkerSet(view.worker_set());
  for (const uint32_t rank : ranks) {
    const WorkerView& worker = view.worker(static_cast<int>(rank));
    // A worker that is lost before the ring is formed is waited for, if it cannot be left out.
    const bool is_absent = worker.state() == WorkerView::ABSENT;
    const bool is_lost = is_absent ? !workers_.IsAlive(rank) && !workers_[rank].gone.empty() &&
                                         MayDrop(ranks.size() - lost.size())
                                   : workers_[rank].present != worker.incarnation();
    if (is_lost) lost.push_back(rank);
  }
  return lost;
}

std::string RingMembers::Loss(const View& view) const {
  std::string loss;
  for (const uint32_t rank : Lost(view)) {
    const std::string& reason = workers_[rank].reason;
    absl::StrAppend(&loss, loss.empty() ? "" : " and ", "worker ", rank, " ",
                    reason.empty() ? "was started again" : reason);
  }
  return loss;
}

absl::Time RingMembers::LostSince(const View& view) const {
  absl::Time since = absl::InfiniteFuture();
  for (const uint32_t rank : Lost(view)) since = std::min(since, workers_[rank].gone_since);
  return since;
}

void RingMembers::BeginGeneration(WorkerSetHistory history, uint64_t iteration, View* next) {
  generation_began_ = next->number() + 1;
  std::vector<uint32_t> ranks;
  if (next->worker_set().empty()) {
    for (int rank = 0; rank < workers_.size(); ++rank) ranks.push_back(rank);
  } else {
    const auto present = LastWorkerSet(next->worker_set());
    ranks.assign(present.begin(), present.end());
    for (const uint32_t rank : Lost(*next)) {
      if (MayDrop(ranks.size())) ranks.erase(std::find(ranks.begin(), ranks.end(), rank));
    }
  }
  if (history.empty()) iteration = 0;
  CutWorkerSets(iteration, &history);
  if (history.empty() || history[history.size() - 1].from_iteration() != iteration) {
    history.Add()->set_from_iteration(iteration);
  }
  WorkerSet& last = history[history.size() - 1];
  last.clear_rank();
  for (const uint32_t rank : ranks) last.add_rank(rank);
  *next->mutable_worker_set() = std::move(history);
  next->clear_worker();
  for (int rank = 0; rank < workers_.size(); ++rank) next->add_worker();
}

std::string RingMembers::Size(const View& next) {
  return absl::StrCat("with ", LastWorkerSet(next.worker_set()).size(), " workers");
}

void RingMembers::Update(View* next) const {
  const auto ranks = LastWorkerSet(next->worker_set());
  const auto is_ready = [&](uint32_t rank) {
    return workers_.IsAlive(rank) && workers_[rank].state.view() >= generation_began_;
  };
  const bool is_complete = std::all_of(ranks.begin(), ranks.end(), is_ready);
  for (const uint32_t rank : ranks) {
    WorkerView* const worker = next->mutable_worker(static_cast<int>(rank));
    if (worker->state() == WorkerView::ABSENT) {
      if (!is_complete) continue;
      worker->set_state(WorkerView::MEMBER);
      worker->set_incarnation(workers_[rank].present);
    } else if (worker->incarnation() == workers_[rank].present && workers_[rank].state.finished()) {
      worker->set_state(WorkerView::FINISHED);
    }
  }
}

bool RingMembers::IsFormed(const View& view) {
  return AllAre(view, {WorkerView::MEMBER, WorkerView::FINISHED});
}

bool RingMembers::AllFinished(const View& view) { return AllAre(view, {WorkerView::FINISHED}); }

}  // namespace evenshard
