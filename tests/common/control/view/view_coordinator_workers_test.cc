// What ViewCoordinator decides on workers that come and go.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/common/control/view/coordinator_run.h"

namespace evenshard {
namespace {

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("FAIL: a lost worker ends the run") {
  CoordinatorRun run(Settings(1, 0, 2, Recovery::FAIL));
  run.StartAll();
  run.KillWorker(1);
  CHECK(run.coordinator->failure().message() == "worker 1 was killed by SIGKILL");
}

TEST_CASE("WAIT: a lost worker is waited for, and its replacement takes its place") {
  CoordinatorRun run(Settings(1, 0, 2));
  run.StartAll();
  run.Events();
  run.KillWorker(1);
  CHECK(run.Workers() == "MA");
  CHECK(run.coordinator->view().worker(1).incarnation() == 0);
  run.now += absl::Seconds(1000);
  run.coordinator->Tick(run.now);
  CHECK(run.Workers() == "MA");
  run.StartWorker(1);
  CHECK(run.Workers() == "MM");
  CHECK(run.coordinator->view().worker(1).incarnation() == run.worker[1]);
  CHECK(run.WorkerSets() == "0:0, 1");
  run.FollowOnce();
  CHECK(run.Events() ==
        Texts{"worker 1 was killed by SIGKILL; its replacement goes on in its place (1000 s)"});
}

TEST_CASE("CONTINUE: a lost worker leaves after the iteration of which its gradient is missing") {
  CoordinatorRun run(Settings(2, 0, 4, Recovery::CONTINUE));
  run.StartAll();
  run.Events();
  run.reports = false;
  run.KillWorker(2);
  CHECK(run.Workers() == "MMLM");
  CHECK(run.coordinator->view().worker_set_changes());
  run.FollowOnce();
  CHECK(run.Workers() == "MMLM");
  run.reports = true;
  REQUIRE(run.Announce(run.PsState(0)).ok());
  CHECK(run.coordinator->view().worker_set_changes());
  REQUIRE(run.Announce(run.PsState(1)).ok());
  CHECK_FALSE(run.coordinator->view().worker_set_changes());
  CHECK(run.Workers() == "MMAM");
  // Slot 0 lacks it from iteration 10 on, slot 1 from 11 on.
  CHECK(run.WorkerSets() == "0:0-3 11:0, 1, 3");
  run.Settle();
  CHECK(absl::StrContains(run.Events().at(0),
                          "worker 2 was killed by SIGKILL; the run goes on with 3 workers from "
                          "iteration 11 on"));

  run.reports = false;
  run.iteration = 30;
  run.StartWorker(2);
  run.FollowOnce();
  CHECK(run.Workers() == "MMJM");
  CHECK(run.coordinator->view().worker_set_changes());
  CHECK(run.coordinator->view().worker(2).incarnation() == run.worker[2]);
  run.reports = true;
  run.Settle();
  CHECK(run.Workers() == "MMMM");
  CHECK(run.WorkerSets() == "0:0-3 11:0, 1, 3 33:0-3");
  CHECK(absl::StrContains(run.Events().back(),
                          "worker 2 is back; the run goes on with 4 workers from iteration 33 on"));
}

TEST_CASE("CONTINUE: several losses go together, and below min_workers the run waits") {
  ViewCoordinator::Settings settings = Settings(1, 0, 4, Recovery::CONTINUE);
  settings.recovery.set_min_workers(2);
  CoordinatorRun run(settings);
  run.StartAll();
  run.reports = false;
  run.KillWorker(0);
  CHECK(run.Workers() == "LMMM");
  run.KillWorker(1);
  run.KillWorker(2);
  CHECK(run.Workers() == "LAAM");  // one change at a time
  run.reports = true;
  run.Settle();
  CHECK(run.Workers() == "AAAM");
  CHECK(run.WorkerSets() == "0:0-3 11:2, 3");
  run.StartWorker(2);
  CHECK(run.Workers() == "AAMM");
  run.Settle();
  CHECK(run.WorkerSets() == "0:0-3 11:2, 3");
  run.StartWorker(0);
  run.StartWorker(1);
  run.Settle();
  CHECK(run.Workers() == "MMMM");
  CHECK(run.WorkerSets().ends_with("12:0-3"));
}

TEST_CASE("CONTINUE: a run that goes back no longer waits for whom it could not go on without") {
  ViewCoordinator::Settings settings = Settings(1, 0, 3, Recovery::CONTINUE);
  settings.recovery.set_min_workers(2);
  CoordinatorRun run(settings);
  run.StartAll();
  run.checkpoint = At(5);
  run.KillWorker(2);
  run.Settle();
  CHECK(run.WorkerSets() == "0:0-2 11:0, 1");
  run.StartWorker(2);
  run.Settle();
  // It counts later than worker 1 leaves.
  REQUIRE(run.WorkerSets().starts_with("0:0-2 11:0, 1 "));
  run.KillWorker(1);
  run.Settle();
  CHECK(run.Workers() == "MAM");
  CHECK(run.WorkerSets().ends_with(":0-2"));
  run.KillPs(0);
  run.StartPs(0);
  run.Settle();
  CHECK(run.coordinator->view().generation() == 2);
  CHECK(run.Workers() == "MAM");
  CHECK(run.WorkerSets().ends_with(":0, 2"));
}

TEST_CASE("CONTINUE: a run waits for the worker that has the initial parameters") {
  CoordinatorRun run(Settings(2, 0, 3, Recovery::CONTINUE));
  run.StartAll();
  ProcessState declares = run.WorkerState(0);
  declares.mutable_declaration()->mutable_model()->add_tensor()->set_name("weight");
  REQUIRE(run.Announce(declares).ok());
  run.iteration = GENERATE(0, 1);  // where slot 0 is
  run.KillWorker(0);
  run.Settle();
  CHECK(run.Workers() == "AMM");
  CHECK(run.WorkerSets() == (run.iteration == 0 ? "0:0-2" : "0:0-2 2:1, 2"));
  run.StartWorker(0);
  run.Settle();
  CHECK(run.Workers() == "MMM");
}

TEST_CASE("CONTINUE: a worker that never comes is given up") {
  CoordinatorRun run(Settings(1, 0, 2, Recovery::CONTINUE));
  run.StartPs(0);
  run.StartWorker(0);
  run.Settle();
  CHECK(run.Workers() == "MA");
  run.now += absl::Seconds(31);
  run.Settle();
  CHECK(run.WorkerSets() == "0:0, 1 11:0");
}

TEST_CASE("CONTINUE: a joiner that dies before it counts is no joiner any more") {
  CoordinatorRun run(Settings(1, 0, 3, Recovery::CONTINUE));
  run.StartAll();
  run.KillWorker(1);
  run.Settle();
  run.reports = false;
  run.StartWorker(1);
  run.Settle();
  CHECK(run.Workers() == "MJM");
  run.KillWorker(1);
  CHECK(run.Workers() == "MAM");
  CHECK_FALSE(run.coordinator->view().worker_set_changes());
}

TEST_CASE("an order does not move a cut that some slot has not begun") {
  ViewCoordinator::Settings settings = Settings(2, 0, 1);
  settings.recovery.mutable_checkpoint()->set_every_seconds(0.5);
  CoordinatorRun run(settings);
  run.StartAll();
  const View& view = run.coordinator->view();
  const auto order = [&run] {
    run.now += absl::Seconds(0.5);
    run.Settle();
  };
  run.iteration = 10;  // slot 1 is at 11
  order();
  CHECK(view.cut_iteration() == 13);
  CHECK(view.cuts() == 1);
  for (const uint64_t iteration : {10, 11, 12}) {
    run.iteration = iteration;
    order();
    CHECK(view.cut_iteration() == 13);
    CHECK(view.cuts() == 1);
  }
  run.iteration = 13;
  run.Pass(absl::Seconds(5));
  CHECK(view.cut_iteration() == 16);
  CHECK(view.cuts() == 2);
}

// Whoever pushes has to push again after each.
TEST_CASE("orders to cut get rarer until the cut is reached") {
  ViewCoordinator::Settings settings = Settings(2, 0, 1);
  settings.recovery.mutable_checkpoint()->set_every_seconds(0.5);
  CoordinatorRun run(settings);
  run.StartAll();
  const View& view = run.coordinator->view();
  run.Pass(absl::Seconds(0.6));
  REQUIRE(view.cut_iteration() == 13);
  const uint64_t before = view.number();
  run.Pass(absl::Seconds(31));
  CHECK(view.number() <= before + 2 * 6);  // 0.5, 1, 2, 4, 8 and 16 s after the one before
  SECTION("and are as frequent as before then") {
    run.iteration = 13;
    for (int i = 0; i < 400 && view.cuts() == 1; ++i) run.Pass(absl::Seconds(0.1));
    CHECK(view.cuts() == 2);
    run.iteration = 16;
    run.Pass(absl::Seconds(1));
    CHECK(view.cuts() == 3);
  }
  SECTION("or a worker is back for which the run has waited") {
    run.KillWorker(0);
    run.StartWorker(0);
    run.iteration = 13;
    run.Pass(absl::Seconds(1));
    CHECK(view.cuts() == 2);
  }
}

TEST_CASE("positions count only for the view of which they are") {
  CoordinatorRun run(Settings(2, 1, 3, Recovery::CONTINUE));
  run.StartAll();
  run.reports = false;
  run.KillWorker(1);
  run.reports = true;
  const ProcessState slot0 = run.PsState(0);
  REQUIRE(run.Announce(slot0).ok());
  // The copy that takes slot 1 over has not taken the gradients that led to no update yet.
  const ProcessState slot1 = run.PsState(1);
  run.KillPs(1);
  CHECK(run.coordinator->view().worker_set_changes());
  REQUIRE(run.Announce(slot0).ok());
  CHECK(run.Announce(slot1).code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(run.Announce(run.PsState(2)).ok());
  CHECK(run.coordinator->view().worker_set_changes());
  run.Settle();
  CHECK_FALSE(run.coordinator->view().worker_set_changes());
}

TEST_CASE("ASYNC: the worker set stays as it is") {
  ViewCoordinator::Settings settings = Settings(1, 0, 2, Recovery::CONTINUE);
  settings.synchronous = false;
  CoordinatorRun run(settings);
  run.StartAll();
  run.KillWorker(0);
  CHECK(run.Workers() == "XM");  // lost, and not waited for
  CHECK_FALSE(run.coordinator->view().worker_set_changes());
  run.StartWorker(0);
  CHECK(run.Workers() == "MM");
  CHECK(run.WorkerSets() == "0:0, 1");
  run.finished = {1};
  run.KillWorker(0);
  run.FollowOnce();
  CHECK_FALSE(run.coordinator->finished());
  run.coordinator->Tick(run.now += absl::Seconds(6));
  CHECK(run.coordinator->finished());
  // The others have gone by now.
  run.StartWorker(0);
  CHECK(run.Workers() == "XF");
  CHECK(run.coordinator->finished());
}

TEST_CASE("ASYNC: a worker that has not come is waited for, and lost after startup_seconds") {
  ViewCoordinator::Settings settings = Settings(1, 0, 2, Recovery::CONTINUE);
  settings.synchronous = false;
  CoordinatorRun run(settings);
  run.StartPs(0);
  run.StartWorker(1);
  run.coordinator->Tick(run.now += absl::Seconds(4));
  run.Settle();
  CHECK(run.Workers() == "AM");
  run.coordinator->Tick(run.now += settings.startup);
  run.Settle();
  CHECK(run.Workers() == "XM");
}

TEST_CASE("the run has succeeded when all have finished") {
  CoordinatorRun run(Settings(1, 0, 2));
  run.StartAll();
  run.finished = {0};
  run.FollowOnce();
  CHECK(run.Workers() == "FM");
  CHECK_FALSE(run.coordinator->finished());
  run.KillWorker(0);
  CHECK(run.Workers() == "FM");
  run.finished = {1};
  run.FollowOnce();
  CHECK(run.coordinator->finished());
  CHECK(run.coordinator->failure().ok());
}

TEST_CASE("a run that has lost a slot does not end before it has gone back") {
  CoordinatorRun run(Settings(1, 0, 1));
  run.StartAll();
  run.KillPs(0);
  run.finished = {0};
  run.FollowOnce();
  CHECK(run.Workers() == "F");
  CHECK_FALSE(run.coordinator->finished());
  run.StartPs(0);
  CHECK(run.coordinator->view().generation() == 2);
  CHECK(run.Workers() == "M");
  CHECK(run.coordinator->failure().ok());
}

TEST_CASE("a run that goes back takes workers back that had finished") {
  CoordinatorRun run(Settings(2, 0, 3, Recovery::CONTINUE));
  run.checkpoint = At(5);
  run.StartAll();
  run.KillWorker(2);
  run.Settle();
  CHECK(run.WorkerSets() == "0:0-2 11:0, 1");
  run.finished = {0};
  run.FollowOnce();
  CHECK(run.Workers() == "FMA");
  const ProcessState finished = run.WorkerState(0);
  const bool is_gone = GENERATE(false, true);
  if (is_gone) run.KillWorker(0);
  run.KillPs(0);
  run.KillPs(1);
  run.StartPs(0);
  run.StartPs(1);
  CHECK(run.coordinator->view().generation() == 2);
  const std::string workers = is_gone ? "AMA" : "MMA";
  CHECK(run.Workers() == workers);
  CHECK(run.WorkerSets() == "0:0, 1");
  // Its last message counts no more.
  CHECK(run.Announce(finished).ok() == !is_gone);
  CHECK(run.Workers() == workers);
  run.finished = {};
  if (is_gone) run.StartWorker(0);
  run.Settle();
  CHECK(run.Workers() == "MMA");
}

TEST_CASE("having finished before the run went back does not count") {
  CoordinatorRun run(Settings(1, 0, 1));
  run.StartAll();
  ProcessState finished = run.WorkerState(0);
  finished.set_finished(true);
  run.KillPs(0);
  run.StartPs(0);
  REQUIRE(run.Announce(finished).ok());
  CHECK(run.Workers() == "M");
  finished.set_view(run.coordinator->view().number());
  REQUIRE(run.Announce(finished).ok());
  CHECK(run.Workers() == "F");
}

}  // namespace evenshard
