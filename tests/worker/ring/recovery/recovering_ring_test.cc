#include "worker/ring/recovery/recovering_ring.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/base/clock.h"
#include "common/checkpoint/storage/real_storage.h"
#include "common/control/run_checkpoints.h"
#include "common/control/view/view_coordinator.h"
#include "tests/testing/cluster.h"
#include "tests/worker/ring/grpc/test_ring.h"

namespace evenshard {
namespace {

constexpr uint64_t kRun = 9;
constexpr int kIterations = 10;

// A real ViewCoordinator, in place of launch, and its links.
class Coordination {
 public:
  Coordination(const PlannedConfig* config, ViewCoordinator::NewestCheckpoint newest)
      : coordinator_(SettingsOf(*config), std::move(newest)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
  }

  // A worker's link. Its end is the worker's.
  class Link final : public ViewLink {
   public:
    explicit Link(Coordination* coordination) : coordination_(*coordination) {}
    ~Link() override { coordination_.Forget(this); }
    void Start(Listener listener) override { listener_ = std::move(listener); }
    void Announce(const ProcessState& state) override {
      absl::MutexLock lock(&coordination_.mutex_);
      state_ = state;
      coordination_.news_.insert(this);
      coordination_.links_.insert(this);
    }
    bool HoldsRoles() const override { return true; }

   private:
    friend Coordination;
    Coordination& coordination_;
    Listener listener_;
    ProcessState state_;  // guarded by the coordination's mutex_
    uint64_t number_ = 0;
  };

  bool finished() {
    absl::MutexLock lock(&mutex_);
    return coordinator_.finished();
  }
  uint64_t generation() {
    absl::MutexLock lock(&mutex_);
    return coordinator_.view().generation();
  }
  std::string failure() {
    absl::MutexLock lock(&mutex_);
    return std::string(coordinator_.failure().message());
  }

 private:
  static ViewCoordinator::Settings SettingsOf(const PlannedConfig& config) {
    ViewCoordinator::Settings settings =
        ViewCoordinator::SettingsOf(config.proto(), config.run_fingerprint());
    settings.run = kRun;
    return settings;
  }

  void Forget(Link* link) {
    const absl::MutexLock calls(&calls_mutex_);
    absl::MutexLock lock(&mutex_);
    links_.erase(link);
    // As a link to launch does, it says the last that was announced before it ends.
    if (news_.erase(link) > 0) coordinator_.Seen(link->state_, absl::Now()).IgnoreError();
    coordinator_.Gone({.is_worker = true,
                       .index = link->state_.worker(),
                       .incarnation = link->state_.incarnation()},
                      "was killed", absl::Now(), absl::Now());
  }

  // Takes what was announced, and tells every link of the latest view.
  void Run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      absl::SleepFor(absl::Milliseconds(2));
      const absl::MutexLock calls(&calls_mutex_);
      std::vector<Link*> behind;
      View view;
      {
        absl::MutexLock lock(&mutex_);
        for (Link* const link : std::exchange(news_, {})) {
          coordinator_.Seen(link->state_, absl::Now()).IgnoreError();
        }
        coordinator_.Tick(absl::Now());
        view = coordinator_.view();
        for (Link* const link : links_) {
          if (std::exchange(link->number_, view.number()) < view.number()) behind.push_back(link);
        }
      }
      for (Link* const link : behind) link->listener_.on_view(view);
    }
  }

  absl::Mutex calls_mutex_;  // held while listeners are called
  absl::Mutex mutex_;
  ViewCoordinator coordinator_;
  std::set<Link*> news_;
  std::set<Link*> links_;
  std::jthread thread_;  // destroyed first
};

// The workers of a ring with recovery in this process. A worker can be lost and replaced.
class RecoveryRun {
 public:
  explicit RecoveryRun(int workers, const std::string& recovery)
      : ring_(workers, {"optimizer={kind: MOMENTUM learning_rate: 0.05}",
                        absl::StrCat("recovery={checkpoint {folder: '", folder_.Path("c"),
                                     "' every_iterations: 4} ", recovery, "}")}) {
    auto checkpoints = RunCheckpoints::Open(ring_.config(), kRun, RunCheckpoints::Start::kNew,
                                            "a test", &storage_, clock_);
    INFO(checkpoints.status().ToString());
    REQUIRE(checkpoints.ok());
    checkpoints_ = *std::move(checkpoints);
    coordination_ = std::make_unique<Coordination>(
        &ring_.config(), [this](bool passes_over) { return checkpoints_->Newest(passes_over); });
  }

  // What a worker does after its iterations before `iteration`: it ends if this returns false.
  using GoesOn = std::function<bool(int rank, int start, int64_t iteration)>;

  // Runs all workers to their ends, and replaces those that were lost. Returns their outcomes.
  std::vector<absl::Status> Run(const GoesOn& goes_on) {
    std::vector<absl::Status> outcomes(ring_.workers(), absl::UnknownError("did not run"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ring_.workers(); ++rank) {
      threads.emplace_back([&, rank] {
        const bool waits = ring_.config().proto().recovery().worker_loss() == Recovery::WAIT;
        for (int start = 0; start == 0 || (waits && absl::IsCancelled(outcomes[rank])); ++start) {
          outcomes[rank] = RunWorker(rank, start, goes_on);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return outcomes;
  }

  // The iteration at which worker 1 pushes a NaN.
  int64_t not_finite_at = -1;

  Coordination& coordination() { return *coordination_; }
  std::vector<float>& parameters(int rank) { return ring_.parameters(rank); }
  // The checkpoint that the run would go back to.
  std::string newest() {
    const auto newest = checkpoints_->Newest(/*passes_over_unreadable=*/false);
    INFO(newest.status().ToString());
    REQUIRE(newest.ok());
    return newest->has_value() ? (*newest)->name : "none";
  }

 private:
  absl::Status RunWorker(int rank, int start, const GoesOn& goes_on) {
    Coordination::Link link(coordination_.get());
    auto exchange =
        RecoveringRing::Connect({.ring = {.config = &ring_.config(),
                                          .rank = rank,
                                          .clock = &clock_,
                                          .gradients = absl::MakeSpan(ring_.gradients(rank)),
                                          .parameters = absl::MakeSpan(ring_.parameters(rank))},
                                 .views = &link});
    if (!exchange.ok()) return exchange.status();
    while (true) {
      absl::Status status = Train(rank, start, **exchange, goes_on);
      if (absl::IsCancelled(status)) return status;  // as if it were killed
      if (status.ok()) status = (*exchange)->Leave(status);
      if (status.ok()) return status;
      if (!(*exchange)->went_back()) {
        (*exchange)->Leave(status).IgnoreError();
        return status;
      }
      if (const auto resumed = (*exchange)->Resume(); !resumed.ok()) return resumed.status();
    }
  }

  absl::Status Train(int rank, int start, RecoveringRing& exchange, const GoesOn& goes_on) {
    absl::Status status = exchange.Pull(absl::MakeSpan(ring_.parameters(rank)));
    for (int64_t i = exchange.next_iteration(); status.ok() && i <= kIterations; ++i) {
      if (!goes_on(rank, start, i)) return absl::CancelledError("lost");
      if (i == kIterations) break;
      const std::vector<float> gradient =
          TestGradient(ring_.config().model(), rank, static_cast<int>(i));
      std::copy(gradient.begin(), gradient.end(), ring_.gradients(rank).begin());
      if (rank == 1 && i == not_finite_at) ring_.gradients(rank)[0] = std::nanf("");
      status = exchange.PushPull(i, ring_.gradients(rank), absl::MakeSpan(ring_.parameters(rank)));
    }
    return status;
  }

  const ScratchFolder folder_;
  const RealClock clock_;
  RealStorage storage_;
  TestRing ring_;
  std::unique_ptr<RunCheckpoints> checkpoints_;
  std::unique_ptr<Coordination> coordination_;
};

std::vector<float> Undisturbed(int workers) {
  RecoveryRun run(workers, "worker_loss: WAIT");
  RequireAllOk(run.Run([](int, int, int64_t) { return true; }));
  CHECK(run.coordination().generation() == 1);
  CHECK(run.coordination().finished());
  CHECK(run.newest() == "generation-0001-iteration-0000000010");
  return run.parameters(0);
}

void RequireSame(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  REQUIRE(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

TEST_CASE("a ring goes on from its checkpoint with the replacement of a lost worker") {
  // Before the first checkpoint, between two, and where one is cut.
  const int64_t lost_at = GENERATE(2, 7, 8);
  INFO("lost at iteration " << lost_at);
  RecoveryRun run(3, "worker_loss: WAIT");
  RequireAllOk(run.Run([&](int rank, int start, int64_t iteration) {
    return rank != 1 || start > 0 || iteration != lost_at;
  }));
  CHECK(run.coordination().generation() == 2);
  CHECK(run.coordination().finished());
  for (int rank = 0; rank < 3; ++rank) RequireSame(run.parameters(rank), Undisturbed(3));
}

TEST_CASE("workers of a ring that have come to the end go back with one that is lost there") {
  RecoveryRun run(3, "worker_loss: WAIT");
  RequireAllOk(run.Run([&](int rank, int start, int64_t iteration) {
    if (rank != 2 || start > 0 || iteration < kIterations) return true;
    absl::SleepFor(absl::Milliseconds(200));  // the others leave meanwhile
    return false;
  }));
  CHECK(run.coordination().generation() == 2);
  for (int rank = 0; rank < 3; ++rank) RequireSame(run.parameters(rank), Undisturbed(3));
}

TEST_CASE("a worker of a ring is lost twice, and another one while the ring is formed again") {
  RecoveryRun run(4, "worker_loss: WAIT");
  RequireAllOk(run.Run([&](int rank, int start, int64_t iteration) {
    if (rank == 0) return start > 1 || iteration < 5 + start;
    return rank != 3 || start > 0 || iteration < 6;
  }));
  for (int rank = 0; rank < 4; ++rank) RequireSame(run.parameters(rank), Undisturbed(4));
}

TEST_CASE("under CONTINUE the others of a ring go on from the checkpoint by themselves") {
  RecoveryRun run(4, "worker_loss: CONTINUE");
  const std::vector<absl::Status> outcomes =
      run.Run([&](int rank, int start, int64_t iteration) { return rank != 1 || iteration < 6; });
  CHECK(absl::IsCancelled(outcomes[1]));
  for (const int rank : {0, 2, 3}) {
    INFO(outcomes[rank].ToString());
    CHECK(outcomes[rank].ok());
    RequireSame(run.parameters(rank), run.parameters(0));
  }
  CHECK(run.newest() == "generation-0002-iteration-0000000010");
  CHECK(run.coordination().finished());
}

TEST_CASE("an error that another try cannot help ends the run of a ring") {
  RecoveryRun run(3, "worker_loss: WAIT");
  run.not_finite_at = 5;
  for (const absl::Status& outcome : run.Run([](int, int, int64_t) { return true; })) {
    CHECK(absl::IsInvalidArgument(outcome));
  }
  CHECK(run.coordination().generation() == 1);
  CHECK_THAT(run.coordination().failure(),
             Catch::Contains("worker 1 pushed a gradient that is not finite at iteration 5"));
}

}  // namespace evenshard
