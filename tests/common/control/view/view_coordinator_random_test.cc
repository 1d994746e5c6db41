#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/common/control/view/coordinator_run.h"

namespace evenshard {
namespace {

// Processes die and come back at random, and follow the views late. After each input the views are
// checked against what the processes can know.
class RandomRun {
 public:
  explicit RandomRun(uint64_t seed) : random_(seed), run_(MakeSettings()) {
    const View& view = run_.coordinator->view();
    last_ = view;
  }

  void Go(int steps) {
    for (int step = 0; step < steps; ++step) {
      Step();
      Check();
      if (!run_.coordinator->failure().ok()) return;
    }
  }

  // Starts everything and lets all follow, for longer than two processes are kept apart.
  void Calm() {
    run_.fills = run_.hands_over = run_.reports = true;
    run_.finished.clear();
    run_.cut.clear();
    run_.worker_cut.clear();
    for (int i = 0; i < run_.settings.slots + run_.settings.spares; ++i) {
      if (!run_.ps.contains(i)) run_.StartPs(i);
      Check();
    }
    for (int i = 0; i < 100; ++i) {
      for (int r = 0; r < run_.settings.workers; ++r) {
        const bool done = run_.coordinator->view().number() > 0 &&
                          run_.coordinator->view().worker(r).state() == WorkerView::FINISHED;
        if (!run_.worker.contains(r) && !done) run_.StartWorker(r);
        Check();
      }
      run_.now += i == 50 ? absl::Minutes(11) : absl::Milliseconds(400);
      for (int p = 0; p < run_.settings.slots + run_.settings.spares; ++p) Deliver(run_.PsState(p));
      const std::map<uint32_t, uint64_t> workers = run_.worker;
      for (const auto& [rank, incarnation] : workers) Deliver(run_.WorkerState(rank));
      run_.coordinator->Tick(run_.now);
      Check();
    }
  }

  CoordinatorRun& run() { return run_; }
  int goes_back() const { return goes_back_; }
  int promotions() const { return promotions_; }
  int hand_overs() const { return hand_overs_; }
  int worker_set_changes() const { return worker_set_changes_; }
  std::string trace() const { return trace_; }

 private:
  static uint64_t Present(const std::map<uint32_t, uint64_t>& processes, uint32_t index) {
    return processes.contains(index) ? processes.at(index) : 0;
  }

  int Dice(int n) { return static_cast<int>(random_() % n); }

  ViewCoordinator::Settings MakeSettings() {
    ViewCoordinator::Settings settings;
    settings.slots = 1 + Dice(4);
    settings.spares = Dice(3);
    settings.workers = 1 + Dice(5);
    settings.synchronous = Dice(4) > 0;
    settings.recovery.set_replicas(Dice(5) > 0);
    settings.recovery.set_silence_seconds(0.5);
    settings.recovery.set_worker_loss(Dice(3) == 0 ? Recovery::WAIT : Recovery::CONTINUE);
    settings.recovery.set_min_workers(1 + Dice(settings.workers));
    settings.recovery.mutable_checkpoint()->set_folder("checkpoints");
    return settings;
  }

  void Step() {
    run_.now += absl::Milliseconds(Dice(200));
    run_.fills = Dice(3) == 0;
    run_.hands_over = Dice(3) == 0;
    run_.reports = Dice(3) == 0;
    run_.iteration += Dice(2);
    const int all = run_.settings.slots + run_.settings.spares;
    const uint32_t p = Dice(all);
    const uint32_t r = Dice(run_.settings.workers);
    switch (Dice(16)) {
      case 15:
        if (Dice(2) == 0) {
          run_.cut.clear();
          run_.worker_cut.clear();
        } else if (Dice(2) == 0) {
          run_.cut.emplace(p, Dice(all));
        } else {
          run_.worker_cut.emplace(r, p);
        }
        break;
      case 0:
        if (run_.ps.contains(p) && Dice(2) == 0) run_.KillPs(p);
        break;
      case 1:
      case 2:
        if (!run_.ps.contains(p) || Dice(20) == 0) run_.StartPs(p);
        break;
      case 3:
        if (run_.worker.contains(r) && Dice(2) == 0) run_.KillWorker(r);
        break;
      case 4:
      case 5:
        if (!run_.worker.contains(r) || Dice(20) == 0) run_.StartWorker(r);
        break;
      case 6:
        if (run_.coordinator->view().number() > 0 && run_.settings.synchronous) {
          run_.checkpoint = {.name = "newest",
                             .generation = run_.coordinator->view().generation(),
                             .iteration = run_.iteration,
                             .worker_set = run_.coordinator->view().worker_set()};
        }
        break;
      case 7:
        if (run_.coordinator->view().number() > 0 && Dice(8) == 0) {
          // A successor takes over. It hears only of starts that are alive.
          late_.clear();
          run_.coordinator.emplace(run_.settings, run_.Newest(), View(run_.coordinator->view()));
        }
        break;
      case 8:
        run_.coordinator->Tick(run_.now);
        break;
      case 9:
        if (!late_.empty()) {
          Deliver(late_.back());
          late_.pop_back();
        }
        break;
      default:
        if (Dice(2) == 0 && run_.ps.contains(p)) {
          Announce(run_.PsState(p));
        } else if (run_.worker.contains(r)) {
          Announce(run_.WorkerState(r));
        }
    }
  }

  // Delivers a state, or keeps it to deliver it late.
  void Announce(const ProcessState& state) {
    if (Dice(3) == 0) {
      late_.push_back(state);
    } else {
      Deliver(state);
    }
  }

  void Deliver(const ProcessState& state) {
    NoteFilled(state);
    const bool refused = absl::IsFailedPrecondition(run_.Announce(state));
    // A worker that was cut off and counts as lost ends.
    if (refused && state.has_worker() &&
        Present(run_.worker, state.worker()) == state.incarnation()) {
      run_.worker.erase(state.worker());
    }
    Check();
  }

  void NoteFilled(const ProcessState& state) {
    const View& view = run_.coordinator->view();
    for (const uint32_t slot : state.filled()) {
      if (state.view() != view.number()) continue;
      has_state_.insert({view.generation(), slot, view.slot(slot).replica().incarnation()});
    }
  }

  void Check() {
    const View& view = run_.coordinator->view();
    if (view.number() == last_.number()) {
      REQUIRE(view.SerializeAsString() == last_.SerializeAsString());
      return;
    }
    trace_ += absl::StrCat(view.number(), " g", view.generation(), " | ", run_.Slots(), " | ",
                           run_.Workers(), " | ", run_.WorkerSets(), "\n");
    INFO(trace_);
    REQUIRE(view.number() == last_.number() + 1);
    REQUIRE(view.generation() >= last_.generation());
    REQUIRE(view.slot_size() == run_.settings.slots);
    REQUIRE(view.worker_size() == run_.settings.workers);
    const bool is_new = view.generation() != last_.generation();
    if (is_new) ++goes_back_;
    int handing_over = 0;
    std::map<uint32_t, int> roles;  // by process
    for (int s = 0; s < view.slot_size(); ++s) {
      const SlotView& slot = view.slot(s);
      if (s < last_.slot_size()) {
        // A replica that is dropped misses what follows.
        const uint64_t former = last_.slot(s).replica().incarnation();
        if (former != slot.replica().incarnation() && former != slot.primary().incarnation()) {
          has_state_.erase({view.generation(), s, former});
        }
      }
      if (slot.has_primary()) {
        REQUIRE(++roles[slot.primary().process()] <= 2);
        if (is_new) has_state_.insert({view.generation(), s, slot.primary().incarnation()});
        REQUIRE(has_state_.contains({view.generation(), s, slot.primary().incarnation()}));
        REQUIRE(Present(run_.ps, slot.primary().process()) == slot.primary().incarnation());
      } else {
        REQUIRE_FALSE(is_new);
        REQUIRE_FALSE(slot.has_replica());
      }
      if (slot.has_replica()) {
        REQUIRE(++roles[slot.replica().process()] <= 2);
        REQUIRE(run_.settings.recovery.replicas() == 1);
        REQUIRE(slot.replica().process() != slot.primary().process());
        REQUIRE(Present(run_.ps, slot.replica().process()) == slot.replica().incarnation());
      }
      if (slot.replica_is_complete()) {
        REQUIRE(slot.has_replica());
        if (is_new) has_state_.insert({view.generation(), s, slot.replica().incarnation()});
        REQUIRE(has_state_.contains({view.generation(), s, slot.replica().incarnation()}));
      }
      if (slot.handing_over()) {
        REQUIRE(slot.replica_is_complete());
        ++handing_over;
      }
      if (!is_new && s < last_.slot_size() && last_.slot(s).has_primary() && slot.has_primary() &&
          last_.slot(s).primary().incarnation() != slot.primary().incarnation()) {
        ++(last_.slot(s).handing_over() && slot.has_replica() ? hand_overs_ : promotions_);
      }
    }
    REQUIRE(handing_over <= 1);
    CheckWorkers(view);
    last_ = view;
  }

  void CheckWorkers(const View& view) {
    REQUIRE(view.worker_set_size() > 0);
    REQUIRE(view.worker_set(0).from_iteration() == 0);
    for (int i = 0; i < view.worker_set_size(); ++i) {
      REQUIRE(view.worker_set(i).rank_size() > 0);
      REQUIRE(std::is_sorted(view.worker_set(i).rank().begin(), view.worker_set(i).rank().end()));
      if (i > 0)
        REQUIRE(view.worker_set(i).from_iteration() > view.worker_set(i - 1).from_iteration());
    }
    if (run_.WorkerSets() != last_worker_sets_) ++worker_set_changes_;
    last_worker_sets_ = run_.WorkerSets();
    const absl::Span<const uint32_t> worker_set = LastWorkerSet(view.worker_set());
    bool changing = false;
    for (int r = 0; r < view.worker_size(); ++r) {
      const WorkerView& worker = view.worker(r);
      const bool counts = std::binary_search(worker_set.begin(), worker_set.end(), r);
      changing |= worker.state() == WorkerView::LEAVING || worker.state() == WorkerView::JOINING;
      if (worker.state() == WorkerView::ABSENT) REQUIRE(worker.incarnation() == 0);
      if (worker.state() == WorkerView::MEMBER) {
        REQUIRE(counts);
        REQUIRE(Present(run_.worker, r) == worker.incarnation());
      }
      if (worker.state() == WorkerView::LEAVING) REQUIRE(counts);
      if (worker.state() == WorkerView::JOINING) REQUIRE_FALSE(counts);
    }
    REQUIRE(view.worker_set_changes() == changing);
    if (!run_.settings.synchronous || run_.settings.recovery.worker_loss() == Recovery::WAIT) {
      REQUIRE_FALSE(view.worker_set_changes());
      REQUIRE(static_cast<int>(worker_set.size()) == run_.settings.workers);
    } else {
      REQUIRE(static_cast<int>(worker_set.size()) >= run_.settings.recovery.min_workers());
    }
  }

  std::mt19937_64 random_;
  CoordinatorRun run_;
  std::vector<ProcessState> late_;
  View last_;
  std::string last_worker_sets_;
  // By generation, slot and incarnation: who can have the slot's state.
  std::set<std::tuple<uint64_t, int, uint64_t>> has_state_;
  std::string trace_;
  int goes_back_ = 0;
  int promotions_ = 0;
  int hand_overs_ = 0;
  int worker_set_changes_ = 0;
};

}  // namespace

TEST_CASE("whatever dies and comes back, the views keep their promises and come to rest") {
  int goes_back = 0;
  int promotions = 0;
  int hand_overs = 0;
  int worker_set_changes = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    CAPTURE(seed);
    RandomRun random(seed);
    random.Go(300);
    random.Calm();
    const uint64_t number = random.run().coordinator->view().number();
    random.Calm();
    INFO(random.trace());
    const View& view = random.run().coordinator->view();
    REQUIRE(view.number() == number);
    REQUIRE(random.run().coordinator->failure().ok());
    std::set<uint32_t> primaries;
    for (const SlotView& slot : view.slot()) {
      REQUIRE(slot.has_primary());
      REQUIRE_FALSE(slot.handing_over());
      REQUIRE(primaries.insert(slot.primary().process()).second);
      if (random.run().settings.recovery.replicas() == 1 && random.run().ps.size() > 1) {
        REQUIRE(slot.replica_is_complete());
      }
    }
    REQUIRE_FALSE(view.worker_set_changes());
    for (const WorkerView& worker : view.worker()) REQUIRE(worker.state() == WorkerView::MEMBER);
    goes_back += random.goes_back();
    promotions += random.promotions();
    hand_overs += random.hand_overs();
    worker_set_changes += random.worker_set_changes();
  }
  // The dice have thrown everything.
  CHECK(goes_back > 1000);
  CHECK(promotions > 500);
  CHECK(hand_overs > 250);
  CHECK(worker_set_changes > 1000);
}

TEST_CASE("equal inputs give equal views") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    RandomRun first(seed);
    RandomRun second(seed);
    first.Go(300);
    second.Go(300);
    REQUIRE(first.trace() == second.trace());
  }
}

}  // namespace evenshard
