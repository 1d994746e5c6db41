#include "tools/launch/coordinator.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "common/control/view/coordinator_link.h"
#include "tests/testing/await.h"
#include "tests/testing/fake_clock.h"

namespace evenshard {
namespace {

ClusterConfig OneShard() {
  ClusterConfig config;
  config.add_shard();
  config.set_workers(1);
  config.mutable_recovery()->set_replicas(0);
  config.mutable_recovery()->set_worker_loss(Recovery::WAIT);
  config.mutable_recovery()->mutable_checkpoint()->set_folder("checkpoints");
  config.mutable_limits()->set_startup_seconds(1);
  return config;
}

constexpr ProcessRole kPs = {false, 0};
constexpr ProcessRole kWorker = {true, 0};

// A process that follows the views.
class Process {
 public:
  Process(const std::string& address, ProcessRole role, uint64_t incarnation)
      : link_(std::make_unique<CoordinatorLink>(address, OneShard(), &clock_)) {
    if (role.is_worker) {
      state_.set_worker(role.index);
    } else {
      state_.set_ps(role.index);
    }
    state_.set_incarnation(incarnation);
    link_->Start({.on_view =
                      [this](const View& view) {
                        absl::MutexLock lock(&mutex_);
                        views_.push_back(view);
                      },
                  .on_end =
                      [this](const absl::Status& reason) {
                        absl::MutexLock lock(&mutex_);
                        end_ = reason;
                      }});
    link_->Announce(state_);
  }
  void Finish() {
    state_.set_finished(true);
    End();
  }
  // Follows the latest view, and is gone.
  void End() {
    state_.set_view(latest().number());
    link_->Announce(state_);
    link_.reset();
  }
  View latest() const {
    absl::MutexLock lock(&mutex_);
    return views_.empty() ? View() : views_.back();
  }
  absl::Status end() const {
    absl::MutexLock lock(&mutex_);
    return end_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::vector<View> views_;
  absl::Status end_;
  ProcessState state_;
  const RealClock clock_;
  std::unique_ptr<CoordinatorLink> link_;
};

std::unique_ptr<CoordinatorServer> StartCoordinator(const Clock* clock) {
  ViewCoordinator::Settings settings = ViewCoordinator::SettingsOf(OneShard(), 0);
  settings.run = 3;
  auto coordinator = CoordinatorServer::Start(
      settings,
      [](bool) -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
        return std::nullopt;
      },
      clock);
  REQUIRE(coordinator.ok());
  (*coordinator)->Started(kPs);
  (*coordinator)->Started(kWorker);
  return *std::move(coordinator);
}

// Waits until worker 0 hears that it takes part. Its shard does not say that it follows the view,
// so that this comes a while later.
void AwaitMember(CoordinatorServer& coordinator, FakeClock& clock, const Process& worker,
                 uint64_t incarnation) {
  AwaitTrue([&] {
    clock.Advance(absl::Milliseconds(1));
    coordinator.Poll();
    return worker.latest().number() > 0 && worker.latest().worker(0).incarnation() == incarnation;
  });
}

}  // namespace

TEST_CASE("processes hear the views, and what they say changes them") {
  const RealClock clock;
  const auto coordinator = StartCoordinator(&clock);
  Process worker(coordinator->address(), kWorker, 21);
  Process shard(coordinator->address(), kPs, 11);
  AwaitTrue([&] {
    return worker.latest().number() > 0 && worker.latest().worker(0).incarnation() == 21;
  });
  CHECK(worker.latest().run() == 3);
  CHECK(worker.latest().slot(0).primary().incarnation() == 11);
  AwaitTrue([&] { return shard.latest().number() == worker.latest().number(); });
  // The last words are delivered before the link is gone.
  worker.Finish();
  AwaitTrue([&] { return coordinator->Poll().finished; });
  CHECK(coordinator->Ended(kWorker, "ended", false, true) == RecoveryHost::Verdict::kDone);
}

TEST_CASE("a worker that ends well without having trained to the end is needed again") {
  const RealClock clock;
  const auto coordinator = StartCoordinator(&clock);
  Process worker(coordinator->address(), kWorker, 21);
  Process shard(coordinator->address(), kPs, 11);
  AwaitTrue([&] {
    return worker.latest().number() > 0 && worker.latest().worker(0).incarnation() == 21;
  });
  worker.End();
  CHECK(coordinator->Ended(kWorker, "ended", false, true) == RecoveryHost::Verdict::kRestart);
  CHECK_FALSE(coordinator->Poll().finished);
}

TEST_CASE("a worker that ends well before any has been heard of is not needed") {
  const RealClock clock;
  const auto coordinator = StartCoordinator(&clock);
  Process shard(coordinator->address(), kPs, 11);
  AwaitTrue([&] { return shard.latest().number() > 0; });
  CHECK(coordinator->Ended(kWorker, "ended", false, true) == RecoveryHost::Verdict::kDone);
}

TEST_CASE("a worker of a ring that fails before there is a view is started again") {
  const FakeClock clock;
  ClusterConfig config = OneShard();
  config.clear_shard();
  config.set_topology(ClusterConfig::RING);
  config.set_workers(2);
  config.mutable_recovery()->clear_checkpoint();
  auto coordinator = CoordinatorServer::Start(
      ViewCoordinator::SettingsOf(config, 0),
      [](bool) -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
        return std::nullopt;
      },
      &clock);
  REQUIRE(coordinator.ok());
  (*coordinator)->Started(kWorker);
  CHECK((*coordinator)->Ended(kWorker, "failed with exit code 127", false, false) ==
        RecoveryHost::Verdict::kRestart);
}

TEST_CASE("a process that does not belong to the run is told so") {
  const RealClock clock;
  const auto coordinator = StartCoordinator(&clock);
  Process other(coordinator->address(), {false, 7}, 11);
  AwaitTrue([&] { return !other.end().ok(); });
  CHECK(other.end().message() == "there is no ps 7, allowed: 0 to 0");
}

TEST_CASE("a link ends when the run has no coordinator any more") {
  const RealClock clock;
  auto coordinator = StartCoordinator(&clock);
  Process shard(coordinator->address(), kPs, 11);
  AwaitTrue([&] { return shard.latest().number() == 1; });
  const std::filesystem::path socket = coordinator->address().substr(5);
  CHECK(std::filesystem::exists(socket));
  coordinator.reset();
  CHECK_FALSE(std::filesystem::exists(socket.parent_path()));
  AwaitTrue([&] { return !shard.end().ok(); });
  CHECK(absl::StrContains(shard.end().message(), "the run has no coordinator any more"));
}

TEST_CASE("a silent process is to be killed, and then counts as dead") {
  FakeClock clock;
  const auto coordinator = StartCoordinator(&clock);
  {
    Process worker(coordinator->address(), kWorker, 21);
    Process shard(coordinator->address(), kPs, 11);
    AwaitMember(*coordinator, clock, worker, 21);
  }
  CHECK(coordinator->Poll().kill.empty());
  SECTION("but not after this process could not run") {
    clock.Advance(absl::Seconds(100));
    CHECK(coordinator->Poll().kill.empty());
  }
  SECTION("after a while") {
    std::vector<ProcessRole> killed;
    for (int i = 0; i < 6; ++i) {
      clock.Advance(absl::Seconds(1));
      for (const ProcessRole role : coordinator->Poll().kill) killed.push_back(role);
    }
    CHECK(killed == std::vector<ProcessRole>{kPs, kWorker});
    CHECK(coordinator->view().worker(0).state() == WorkerView::MEMBER);
    CHECK(coordinator->Ended(kWorker, "was killed by SIGKILL", true, false) ==
          RecoveryHost::Verdict::kRestart);
    CHECK(coordinator->view().worker(0).state() == WorkerView::ABSENT);
    CHECK(coordinator->Ended(kPs, "was killed by SIGKILL", true, false) ==
          RecoveryHost::Verdict::kRestart);
    CHECK_FALSE(coordinator->view().slot(0).has_primary());
    coordinator->Started(kPs);
    Process shard(coordinator->address(), kPs, 12);
    AwaitTrue([&] { return shard.latest().generation() == 2; });
  }
}

TEST_CASE("a process that has not been heard of after a while is to be killed") {
  FakeClock clock;
  const auto coordinator = StartCoordinator(&clock);
  const bool are_programs = GENERATE(false, true);
  if (are_programs) coordinator->WorkersArePrograms();
  const auto killed_within = [&](int seconds) {
    std::vector<ProcessRole> killed;
    for (int i = 0; i < seconds; ++i) {
      clock.Advance(absl::Seconds(1));
      for (const ProcessRole role : coordinator->Poll().kill) killed.push_back(role);
    }
    return killed;
  };
  const int patience = static_cast<int>(OneShard().limits().exchange_seconds());
  CHECK(killed_within(patience - 1).empty());
  // A program may have much to do before it joins.
  CHECK(killed_within(3) ==
        (are_programs ? std::vector{kPs} : std::vector<ProcessRole>{kPs, kWorker}));
  CHECK(coordinator->Ended(kPs, "was killed by SIGKILL", true, false) ==
        RecoveryHost::Verdict::kRestart);
  coordinator->Started(kPs);
  CHECK(killed_within(patience - 1).empty());
}

TEST_CASE("a program that has left the run may go on in silence, and its end counts") {
  FakeClock clock;
  const auto coordinator = StartCoordinator(&clock);
  Process shard(coordinator->address(), kPs, 11);
  {
    Process worker(coordinator->address(), kWorker, 21);
    AwaitMember(*coordinator, clock, worker, 21);
    worker.Finish();
    AwaitTrue([&] { return coordinator->view().finished(); });
  }
  for (int i = 0; i < 20; ++i) {
    clock.Advance(absl::Seconds(1));
    for (const ProcessRole role : coordinator->Poll().kill) CHECK_FALSE(role.is_worker);
  }
  const auto [reason, by_signal, success, verdict] =
      GENERATE(table<std::string, bool, bool, RecoveryHost::Verdict>(
          {{"ended", false, true, RecoveryHost::Verdict::kDone},
           {"failed with exit code 3", false, false, RecoveryHost::Verdict::kFailure},
           {"was killed by SIGSEGV", true, false, RecoveryHost::Verdict::kFailure}}));
  if (!by_signal) {
    CHECK(coordinator->Ended(kWorker, reason, by_signal, success) == verdict);
    return;
  }
  // Evenshard's own worker has nothing left to do.
  const bool is_program = GENERATE(false, true);
  if (is_program) coordinator->WorkersArePrograms();
  CHECK(coordinator->Ended(kWorker, reason, by_signal, success) ==
        (is_program ? verdict : RecoveryHost::Verdict::kDone));
}

TEST_CASE("a worker that dies before the training has ended is started again, though finished") {
  const RealClock clock;
  ViewCoordinator::Settings settings = ViewCoordinator::SettingsOf(OneShard(), 0);
  settings.workers = 2;
  auto started = CoordinatorServer::Start(
      settings,
      [](bool) -> absl::StatusOr<std::optional<ViewCoordinator::Checkpoint>> {
        return std::nullopt;
      },
      &clock);
  REQUIRE(started.ok());
  CoordinatorServer& coordinator = **started;
  constexpr ProcessRole kOther = {true, 1};
  for (const ProcessRole role : {kPs, kWorker, kOther}) coordinator.Started(role);
  Process worker(coordinator.address(), kWorker, 21);
  Process other(coordinator.address(), kOther, 22);
  Process shard(coordinator.address(), kPs, 11);
  AwaitTrue([&] {
    return worker.latest().number() > 0 && worker.latest().worker(0).incarnation() == 21;
  });
  worker.Finish();
  AwaitTrue([&] { return coordinator.view().worker(0).state() == WorkerView::FINISHED; });
  CHECK(coordinator.Ended(kWorker, "was killed by SIGKILL", true, false) ==
        RecoveryHost::Verdict::kRestart);
  coordinator.Started(kWorker);
  Process successor(coordinator.address(), kWorker, 23);
  AwaitTrue([&] { return other.latest().number() == coordinator.view().number(); });
  other.Finish();
  AwaitTrue([&] { return coordinator.view().finished(); });
  // The successor has waited in vain, and what it ends with means nothing.
  CHECK(coordinator.Poll().end == std::vector<ProcessRole>{kWorker});
  CHECK(coordinator.Ended(kWorker, "failed with exit code 1", false, false) ==
        RecoveryHost::Verdict::kDone);
  CHECK(coordinator.Ended(kOther, "failed with exit code 3", false, false) ==
        RecoveryHost::Verdict::kFailure);
}

}  // namespace evenshard
