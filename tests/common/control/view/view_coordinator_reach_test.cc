// Processes that the coordinator hears, and that cannot reach each other.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/control/view/coordinator_run.h"

namespace evenshard {
namespace {

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a replica that its primary cannot reach is dropped, and filled anew later") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1*");
  run.Events();
  run.cut = {{0, 1}};
  run.Pass(absl::Seconds(4.9));
  CHECK(run.Slots() == "0:1*");
  run.Pass(absl::Seconds(0.5));
  CHECK(run.Slots() == "0:-");
  const Texts events = run.Events();
  REQUIRE(events.size() == 1);
  CHECK_THAT(events[0],
             Catch::Matchers::StartsWith("ps 0 cannot reach ps 1; slot 0 has no replica now (5."));
  run.cut.clear();
  run.Pass(absl::Seconds(19));
  CHECK(run.Slots() == "0:-");
  run.fills = false;
  run.Pass(absl::Seconds(1));
  CHECK(run.Slots() == "0:1");
  run.fills = true;
  run.Pass(absl::Seconds(1));
  CHECK(run.Slots() == "0:1*");
  CHECK(run.coordinator->view().generation() == 1);
}

TEST_CASE("a replica that stays out of reach is tried ever more rarely") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  run.cut = {{0, 1}};
  std::vector<int> dropped;  // after so many seconds
  bool had = true;
  for (int second = 0; second < 3600; ++second) {
    run.Pass(absl::Seconds(1));
    const bool has = run.coordinator->view().slot(0).has_replica();
    if (had && !has) dropped.push_back(second);
    had = has;
  }
  CHECK(dropped.size() == 10);
  REQUIRE(dropped.size() > 3);
  CHECK(dropped[1] - dropped[0] < 30);
  CHECK(dropped[3] - dropped[2] > 80);
  // It is tried at once when it has been started again.
  run.cut.clear();
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  CHECK(run.Slots() == "0:1*");
}

TEST_CASE("another process gets the replica that its holder cannot be reached for") {
  CoordinatorRun run(Settings(2, 1, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:2*");
  run.cut = {{0, 1}};
  run.Pass(absl::Seconds(6));
  CHECK(run.Slots() == "0:2* 1:2*");
}

TEST_CASE("only what a primary says of the present view counts against its replica") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  ProcessState report = run.PsState(0);
  report.add_unreachable(0);
  const auto say = [&] {
    for (int i = 0; i < 100; ++i) {
      run.now += absl::Milliseconds(100);
      REQUIRE(run.Announce(report).ok());
      run.coordinator->Tick(run.now);
    }
  };
  SECTION("and not of an earlier one") {
    run.StartWorker(0);  // another view
    REQUIRE(report.view() < run.coordinator->view().number());
    say();
    CHECK(run.Slots() == "0:1*");
  }
  SECTION("and not of a replica that does not follow the view yet") {
    run.StartWorker(0);
    report.set_view(run.coordinator->view().number());
    say();
    CHECK(run.Slots() == "0:1*");
    REQUIRE(run.Announce(run.PsState(1)).ok());
    say();
    CHECK(run.Slots() == "0:-");
  }
  SECTION("and not when the primary is gone by then") {
    run.cut = {{0, 1}};
    run.Pass(absl::Seconds(4.9));
    run.KillPs(0);
    CHECK(run.Slots() == "1:-");
    CHECK_FALSE(run.Announce(report).ok());
    run.Pass(absl::Seconds(10));
    CHECK(run.Slots() == "1:-");
  }
}

TEST_CASE("a primary that reaches its replica again keeps it") {
  CoordinatorRun run(Settings(1, 1, 1));
  run.StartAll();
  for (int i = 0; i < 10; ++i) {
    run.cut = {{0, 1}};
    run.Pass(absl::Seconds(4));
    run.cut.clear();
    run.Pass(absl::Seconds(1));
  }
  CHECK(run.Slots() == "0:1*");
}

TEST_CASE("a slot is not handed over to a replica that is out of reach") {
  CoordinatorRun run(Settings(2, 0, 1));
  run.StartAll();
  run.hands_over = false;
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  CHECK(run.Slots() == "0:1* 0>1*");
  run.cut = {{0, 1}};
  run.Pass(absl::Seconds(6));
  CHECK(run.Slots() == "0:- 0:-");
  run.cut.clear();
  run.hands_over = true;
  run.Pass(absl::Seconds(30));
  CHECK(run.Slots() == "0:1* 1:0*");
}

TEST_CASE("a slot whose primary a worker cannot reach goes to the replica, and stays for a while") {
  CoordinatorRun run(Settings(2, 0, 2));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:0*");
  run.Events();
  run.worker_cut = {{1, 0}};
  run.Pass(absl::Seconds(4.9));
  CHECK(run.Slots() == "0:1* 1:0*");
  run.Pass(absl::Seconds(0.5));
  CHECK(run.Slots() == "1:0* 1:0*");
  const Texts events = run.Events();
  REQUIRE(events.size() == 2);
  CHECK_THAT(events[0],
             Catch::Matchers::StartsWith("worker 1 cannot reach ps 0, which hands slot 0 over"));
  CHECK_THAT(events[1], Catch::Matchers::StartsWith("ps 1 relieved ps 0 of slot 0"));
  run.Pass(absl::Seconds(19));
  CHECK(run.Slots() == "1:0* 1:0*");
  SECTION("and comes back") {
    run.worker_cut.clear();
    run.Pass(absl::Seconds(2));
    CHECK(run.Slots() == "0:1* 1:0*");
  }
  SECTION("ever more rarely while the worker is cut off") {
    int moves = 0;
    std::string before = run.Slots();
    for (int i = 0; i < 3600; ++i) {
      run.Pass(absl::Seconds(1));
      if (run.Slots() != before) ++moves;
      before = run.Slots();
    }
    CHECK(moves < 60);
    CHECK(run.Workers() == "MM");
  }
}

TEST_CASE("a slot does not go to and fro between processes that workers cannot reach") {
  CoordinatorRun run(Settings(2, 0, 2, Recovery::CONTINUE));
  run.StartAll();
  run.worker_cut = {{0, 0}, {1, 1}};
  run.Pass(absl::Seconds(60));
  // One of the workers is lost, and the slots are where the other one reaches them.
  CHECK((run.Workers() == "MA" || run.Workers() == "AM"));
  const std::string slots = run.Slots();
  CHECK(slots == (run.Workers() == "MA" ? "1:0* 1:0*" : "0:1* 0:1*"));
  run.Pass(absl::Seconds(4));
  CHECK(run.Slots() == slots);
}

TEST_CASE("a worker that cannot reach a slot that nobody else can take is lost") {
  ViewCoordinator::Settings settings =
      Settings(2, 0, 2, GENERATE(Recovery::WAIT, Recovery::CONTINUE, Recovery::FAIL));
  settings.recovery.set_replicas(0);
  CoordinatorRun run(settings);
  run.StartAll();
  run.worker_cut = {{1, 0}};
  const uint64_t cut_off = run.worker[1];
  // One that is waited for may be back until the others give up.
  const bool goes_on = settings.recovery.worker_loss() == Recovery::CONTINUE;
  run.Pass(goes_on ? absl::Seconds(4.9) : settings.exchange / 2 - absl::Seconds(0.1));
  CHECK(run.Workers() == "MM");
  run.Pass(absl::Seconds(0.5));
  CHECK(run.coordinator->failure().ok());
  if (settings.recovery.worker_loss() == Recovery::FAIL) {
    CHECK(run.Workers() == "MM");  // it has until limits.exchange_seconds
    return;
  }
  CHECK(run.coordinator->view().worker(1).incarnation() == 0);
  ProcessState late;
  late.set_worker(1);
  late.set_incarnation(cut_off);
  late.set_config_fingerprint(settings.config_fingerprint);
  CHECK(absl::IsFailedPrecondition(run.Announce(late)));
  run.Pass(absl::Seconds(1));
  run.StartWorker(1);
  run.Pass(absl::Seconds(1));
  if (settings.recovery.worker_loss() == Recovery::WAIT) {
    CHECK(run.Workers() == "MM");  // the run waits for it, and for nothing else
    return;
  }
  // It would hold the others up again.
  CHECK(run.Workers() == "MA");
  run.worker_cut.clear();
  run.Pass(absl::Seconds(20));
  CHECK(run.Workers() == "MM");
  CHECK(run.WorkerSets() == "0:0, 1 11:0 13:0, 1");
}

TEST_CASE("a worker without which the run cannot go on has as long as one that is waited for") {
  ViewCoordinator::Settings settings = Settings(2, 0, 3, Recovery::CONTINUE);
  settings.recovery.set_replicas(0);
  settings.recovery.set_min_workers(2);
  CoordinatorRun run(settings);
  run.StartAll();
  for (const uint32_t rank : {0, 1, 2}) run.worker_cut.insert({rank, 0});
  run.Pass(absl::Seconds(20));
  CHECK(run.Workers() == "AMM");
  run.Pass(settings.exchange / 2 - absl::Seconds(20.1));
  CHECK(run.Workers() == "AMM");
  run.Pass(absl::Seconds(0.5));
  CHECK(run.Workers() == "AAA");
}

TEST_CASE("with etcd a ps that is dead, whose lease has not ended, costs no worker") {
  ViewCoordinator::Settings settings = Settings(2, 0, 2, Recovery::CONTINUE);
  settings.recovery.set_replicas(0);
  settings.recovery.mutable_etcd();
  CoordinatorRun run(settings);
  run.StartAll();
  run.worker_cut = {{0, 0}, {1, 0}};
  run.Pass(absl::Seconds(9));
  CHECK(run.Workers() == "MM");
  run.Pass(absl::Seconds(2));
  CHECK(run.Workers() == "AM");  // it is alive
}

TEST_CASE("a replica takes over from a primary that neither it nor most workers can reach") {
  ViewCoordinator::Settings settings = Settings(2, 0, 2);
  const bool etcd = GENERATE(true, false);
  const bool are_most = GENERATE(true, false);
  if (etcd) settings.recovery.mutable_etcd();
  CoordinatorRun run(settings);
  run.StartAll();
  run.cut = {{0, 1}, {1, 0}};
  run.worker_cut = {{0, 0}};
  if (are_most) run.worker_cut.insert({1, 0});
  run.Pass(absl::Seconds(6));
  // Without etcd the primary could still write into the memory of a worker.
  CHECK(run.Slots() == (etcd && are_most ? "1:- 1:-" : "0:- 1:-"));
  CHECK(run.coordinator->view().generation() == 1);
  run.cut.clear();
  run.worker_cut.clear();
  run.Pass(absl::Seconds(60));
  CHECK(run.Slots() == "0:1* 1:0*");
}

TEST_CASE("a worker that comes before its shard has taken its slot is not cut off") {
  CoordinatorRun run(Settings(2, 0, 1));
  run.StartAll();
  run.KillPs(1);
  CHECK(run.Slots() == "0:- 0:-");
  // The worker follows the view, and ps 0 does not yet.
  ProcessState worker = run.WorkerState(0);
  worker.add_unreachable(1);
  for (int i = 0; i < 200; ++i) {
    run.now += absl::Milliseconds(100);
    REQUIRE(run.Announce(worker).ok());
    run.coordinator->Tick(run.now);
  }
  CHECK(run.Workers() == "M");
}

}  // namespace evenshard
