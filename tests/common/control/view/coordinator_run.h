#ifndef EVENSHARD_TESTS_COMMON_CONTROL_VIEW_COORDINATOR_RUN_H_
#define EVENSHARD_TESTS_COMMON_CONTROL_VIEW_COORDINATOR_RUN_H_

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/control/view/view_coordinator.h"

namespace evenshard {

inline ViewCoordinator::Settings Settings(int slots, int spares, int workers,
                                          Recovery::WorkerLoss worker_loss = Recovery::WAIT) {
  ViewCoordinator::Settings settings;
  settings.slots = slots;
  settings.spares = spares;
  settings.workers = workers;
  settings.config_fingerprint = 7;
  settings.run = 5;
  settings.recovery.set_replicas(1);
  settings.recovery.set_worker_loss(worker_loss);
  settings.recovery.mutable_checkpoint()->set_folder("checkpoints");
  return settings;
}

inline ViewCoordinator::Checkpoint At(uint64_t iteration, uint64_t generation = 1) {
  return {.name = absl::StrCat("iteration-", iteration),
          .generation = generation,
          .iteration = iteration,
          .trained = iteration};
}

// A ViewCoordinator and the processes that it decides on, which do at once what a view asks of
// them.
class CoordinatorRun {
 public:
  explicit CoordinatorRun(ViewCoordinator::Settings settings) : settings(settings) {
    coordinator.emplace(settings, Newest());
  }

  ViewCoordinator::NewestCheckpoint Newest() {
    return [this](bool passes_over_unreadable)
               -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
      if (passes_over_unreadable && older_checkpoint.has_value()) return older_checkpoint;
      if (!checkpoint_error.ok()) return checkpoint_error;
      return checkpoint;
    };
  }

  // Starts a process, or starts it again.
  void StartPs(uint32_t index) {
    ps[index] = ++incarnations;
    Announce(PsState(index)).IgnoreError();
  }
  void StartWorker(uint32_t rank) {
    worker[rank] = ++incarnations;
    Announce(WorkerState(rank)).IgnoreError();
  }
  void StartAll() {
    for (int i = 0; i < settings.slots + settings.spares; ++i) StartPs(i);
    for (int r = 0; r < settings.workers; ++r) StartWorker(r);
    Settle();
  }

  void KillPs(uint32_t index) {
    const uint64_t incarnation = ps[index];
    ps.erase(index);
    coordinator->Gone({.index = index, .incarnation = incarnation}, "was killed by SIGKILL", now,
                      now);
  }
  void KillWorker(uint32_t rank) {
    const uint64_t incarnation = worker[rank];
    worker.erase(rank);
    finished.erase(rank);
    coordinator->Gone({.is_worker = true, .index = rank, .incarnation = incarnation},
                      "was killed by SIGKILL", now, now);
  }

  ProcessState PsState(uint32_t index) const {
    const View& view = coordinator->view();
    ProcessState state;
    state.set_ps(index);
    state.set_incarnation(ps.at(index));
    state.set_address(absl::StrCat("host:", index));
    state.set_config_fingerprint(settings.config_fingerprint);
    state.set_view(view.number());
    for (int s = 0; s < view.slot_size(); ++s) {
      const SlotView& slot = view.slot(s);
      if (slot.primary().incarnation() != ps.at(index)) continue;
      const bool reaches = !cut.contains({index, slot.replica().process()});
      if (slot.has_replica() && !reaches) state.add_unreachable(s);
      if (fills && reaches && slot.has_replica() && !slot.replica_is_complete()) {
        state.add_filled(s);
      }
      if (hands_over && reaches && slot.handing_over()) state.add_handed_over(s);
      if (!view.worker_set_changes() || !reports) continue;
      ProcessState::Position* position = state.add_position();
      position->set_slot(s);
      position->set_iteration(iteration + s);
      position->set_least_iteration(iteration + s);
    }
    return state;
  }
  ProcessState WorkerState(uint32_t rank) const {
    ProcessState state;
    state.set_worker(rank);
    state.set_incarnation(worker.at(rank));
    state.set_config_fingerprint(settings.config_fingerprint);
    state.set_view(coordinator->view().number());
    state.set_finished(finished.contains(rank));
    const View& view = coordinator->view();
    const bool connects = view.number() > 0 && view.worker(rank).state() == WorkerView::MEMBER;
    for (int s = 0; connects && s < view.slot_size(); ++s) {
      const SlotView& slot = view.slot(s);
      if (slot.has_primary() && worker_cut.contains({rank, slot.primary().process()})) {
        state.add_unreachable(s);
      }
    }
    return state;
  }
  absl::Status Announce(const ProcessState& state) { return coordinator->Seen(state, now); }

  // Everyone follows the present view.
  void FollowOnce() {
    const auto all_ps = ps;
    for (const auto& [index, incarnation] : all_ps) Announce(PsState(index)).IgnoreError();
    const auto all_workers = worker;
    for (const auto& [rank, incarnation] : all_workers) Announce(WorkerState(rank)).IgnoreError();
    coordinator->Tick(now);
  }
  // Lets everyone follow until nothing changes. Returns whether that came about.
  bool Settle() {
    for (int i = 0; i < 200; ++i) {
      const uint64_t before = coordinator->view().number();
      now += absl::Milliseconds(50);
      FollowOnce();
      now += absl::Milliseconds(51);
      FollowOnce();
      if (coordinator->view().number() == before) return true;
    }
    return false;
  }

  // Lets everyone follow for a while.
  void Pass(absl::Duration duration) {
    for (const absl::Time end = now + duration; now < end;) {
      now += absl::Milliseconds(100);
      FollowOnce();
    }
  }

  // "0:1* 2:0" says for each slot the primary, and the copy, with a star if it is complete; ">" if
  // it is handing over.
  std::string Slots() const {
    std::string text;
    for (const SlotView& slot : coordinator->view().slot()) {
      absl::StrAppend(&text, text.empty() ? "" : " ");
      absl::StrAppend(&text, slot.has_primary() ? absl::StrCat(slot.primary().process()) : "-");
      absl::StrAppend(&text, slot.handing_over() ? ">" : ":");
      absl::StrAppend(&text, slot.has_replica() ? absl::StrCat(slot.replica().process()) : "-",
                      slot.replica_is_complete() ? "*" : "");
    }
    return text;
  }
  // The workers' states: "A" absent, "J", "M", "L", "F".
  std::string Workers() const {
    std::string text;
    for (const WorkerView& worker : coordinator->view().worker()) text += "AJMLFX"[worker.state()];
    return text;
  }
  // "0:0-3 120:0-2"
  std::string WorkerSets() const {
    std::string text;
    for (const WorkerSet& worker_set : coordinator->view().worker_set()) {
      absl::StrAppend(
          &text, text.empty() ? "" : " ", worker_set.from_iteration(), ":",
          FormatRanks(absl::MakeConstSpan(worker_set.rank().data(), worker_set.rank_size())));
    }
    return text;
  }
  std::vector<std::string> Events() {
    std::vector<std::string> texts;
    for (const RecoveryEvent& event : coordinator->TakeEvents()) {
      texts.push_back(absl::StrCat(event.what(), " (", event.seconds(), " s)"));
    }
    return texts;
  }

  ViewCoordinator::Settings settings;
  std::optional<ViewCoordinator> coordinator;
  std::optional<ViewCoordinator::Checkpoint> checkpoint;
  absl::Status checkpoint_error;
  // Can be read when the newest cannot.
  std::optional<ViewCoordinator::Checkpoint> older_checkpoint;
  absl::Time now = absl::FromUnixSeconds(1000);
  std::map<uint32_t, uint64_t> ps;      // the incarnations that are alive, by index
  std::map<uint32_t, uint64_t> worker;  // by rank
  std::set<uint32_t> finished;
  std::set<std::pair<uint32_t, uint32_t>> cut;         // the first ps does not reach the second
  std::set<std::pair<uint32_t, uint32_t>> worker_cut;  // the worker does not reach the ps
  // Whether primaries say that a copy is full, that they have handed over, where they stand.
  bool fills = true;
  bool hands_over = true;
  bool reports = true;
  uint64_t iteration = 10;  // where slot 0 stands; slot s stands s further
  uint64_t incarnations = 100;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONTROL_VIEW_COORDINATOR_RUN_H_
