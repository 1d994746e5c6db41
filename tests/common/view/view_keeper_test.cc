#include "common/view/view_keeper.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/common/view/keeper_run.h"

namespace ps {
namespace {

ViewKeeper::Settings Settings(int slots, int spares, int workers,
                              Recovery::WorkerLoss worker_loss = Recovery::WAIT) {
  ViewKeeper::Settings settings;
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

ViewKeeper::Checkpoint At(uint64_t iteration, uint64_t generation = 1) {
  return {.name = absl::StrCat("iteration-", iteration),
          .generation = generation,
          .iteration = iteration};
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("view 1 comes when all ps are there") {
  KeeperRun run(Settings(2, 1, 2));
  run.StartPs(0);
  run.StartWorker(1);
  run.StartPs(1);
  CHECK(run.keeper->view().number() == 0);
  run.StartPs(2);
  const View& view = run.keeper->view();
  CHECK(view.number() == 1);
  CHECK(view.generation() == 1);
  CHECK(view.checkpoint().empty());
  CHECK(view.run() == 5);
  CHECK(run.Slots() == "0:1* 1:2*");
  CHECK(view.slot(0).primary().address() == "host:0");
  CHECK(view.slot(0).primary().incarnation() == run.ps[0]);
  CHECK(run.Workers() == "AM");
  CHECK(run.Crews() == "0:0, 1");
  run.StartWorker(0);
  CHECK(run.Workers() == "MM");
  CHECK_FALSE(view.crew_changes());
}

TEST_CASE("a run begins without its spares after a while, and with a spare in a slot") {
  KeeperRun run(Settings(2, 1, 1));
  run.StartPs(0);
  run.keeper->Tick(run.now + absl::Seconds(10));
  CHECK(run.keeper->view().number() == 0);
  SECTION("without its spare") {
    run.StartPs(1);
    run.keeper->Tick(run.now + absl::Seconds(10));
    CHECK(run.Slots() == "0:1* 1:0*");
  }
  SECTION("with the spare in slot 1") {
    run.StartPs(2);
    run.keeper->Tick(run.now + absl::Seconds(10));
    CHECK(run.Slots() == "0:2* 2:0*");
  }
}

TEST_CASE("without replicas no slot has a copy") {
  ViewKeeper::Settings settings = Settings(2, 1, 1);
  settings.recovery.set_replicas(0);
  KeeperRun run(settings);
  run.StartAll();
  CHECK(run.Slots() == "0:- 1:-");
  run.KillPs(1);
  CHECK(run.Slots() == "0:- 2:-");
  CHECK(run.keeper->view().generation() == 2);
}

TEST_CASE("workers that come one shortly after another come with one view") {
  KeeperRun run(Settings(1, 0, 4));
  run.StartPs(0);
  run.StartWorker(0);
  CHECK(run.Workers() == "MAAA");
  run.StartWorker(1);
  run.StartWorker(2);
  CHECK(run.Workers() == "MAAA");
  run.keeper->Tick(run.now += absl::Milliseconds(100));
  CHECK(run.Workers() == "MMMA");
  run.StartWorker(3);
  CHECK(run.Workers() == "MMMM");
}

TEST_CASE("a copy takes over, the process comes back, is filled and holds its slot again") {
  KeeperRun run(Settings(2, 0, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:0*");
  run.Events();
  run.fills = run.hands_over = false;
  run.KillPs(1);
  CHECK(run.Slots() == "0:- 0:-");
  CHECK(run.keeper->view().generation() == 1);
  CHECK(run.Events().empty());  // the worker does not follow yet
  run.now += absl::Milliseconds(250);
  run.FollowOnce();
  CHECK(run.Events() == Texts{"ps 1 was killed by SIGKILL; slot 0 has no copy now; ps 0 took slot 1"
                              " over (0.25 s)"});
  run.StartPs(1);
  CHECK(run.Slots() == "0:1 0:1");
  run.Settle();
  CHECK(run.Slots() == "0:1 0:1");
  run.fills = true;
  run.FollowOnce();
  CHECK(run.Slots() == "0:1* 0>1*");
  run.hands_over = true;
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:0*");
  CHECK(absl::StrContains(run.Events().back(), "ps 1 is back and holds slot 1 again"));
}

TEST_CASE("a copy that is not complete does not take over") {
  KeeperRun run(Settings(2, 0, 1));
  run.checkpoint = At(400);
  run.StartAll();
  run.fills = false;
  run.KillPs(1);
  run.StartPs(1);
  run.KillPs(0);
  CHECK(run.Slots() == "-:- -:-");
  CHECK(run.keeper->view().generation() == 1);
  run.StartPs(0);
  CHECK(run.Slots() == "0:1* 1:0*");
  CHECK(run.keeper->view().generation() == 2);
  CHECK(run.keeper->view().checkpoint() == "iteration-400");
  run.now += absl::Seconds(1);
  run.Settle();
  CHECK(absl::StrContains(run.Events().back(),
                          "went back to the checkpoint of iteration 400, because ps 0 was killed "
                          "by SIGKILL, and nobody has a copy of slot 1"));
}

TEST_CASE("what a primary says of an earlier copy does not count for the present one") {
  KeeperRun run(Settings(2, 0, 1));
  run.StartAll();
  run.fills = false;
  run.KillPs(1);
  run.StartPs(1);
  run.fills = true;
  const ProcessState filled = run.PsState(0);
  CHECK(filled.filled_size() == 2);
  run.KillPs(1);
  run.StartPs(1);
  CHECK(run.Slots() == "0:1 0:1");
  REQUIRE(run.Announce(filled).ok());
  CHECK(run.Slots() == "0:1 0:1");
}

TEST_CASE("a start that comes without the one before being reported gone replaces it") {
  KeeperRun run(Settings(2, 0, 1));
  run.StartAll();
  const ProcessState old = run.PsState(1);
  run.StartPs(1);
  CHECK(run.Slots() == "0:1 0:1");
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:0*");
  CHECK(run.keeper->view().slot(1).primary().incarnation() == run.ps[1]);
  CHECK(run.Announce(old).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(run.keeper->view().slot(1).primary().incarnation() == run.ps[1]);
}

TEST_CASE("a spare relieves the process that took a slot over") {
  KeeperRun run(Settings(3, 1, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:2* 2:3*");
  run.KillPs(1);
  // The process that holds slots 1 and 2 gives slot 2 to the spare, which has its copy.
  CHECK(run.Slots() == "0:3 2:0 2>3*");
  run.Settle();
  CHECK(run.Slots() == "0:3* 2:0* 3:2*");
  run.StartPs(1);
  run.Settle();
  CHECK(run.keeper->view().generation() == 1);
  CHECK(run.Slots() == "0:3* 2:0* 3:2*");
}

TEST_CASE("a copy goes to a loaded process when the dead one stays away, and back when it comes") {
  KeeperRun run(Settings(3, 0, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:2* 2:0*");
  run.KillPs(2);
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:- 0:-");
  run.now += absl::Seconds(60);
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:0* 0:1*");
  run.StartPs(2);
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:0* 2:0*");
}

TEST_CASE("a process that dies while it hands over is replaced by the copy") {
  KeeperRun run(Settings(2, 0, 1));
  run.StartAll();
  run.hands_over = false;
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  CHECK(run.Slots() == "0:1* 0>1*");
  SECTION("the primary") {
    run.KillPs(0);
    CHECK(run.Slots() == "1:- 1:-");
  }
  SECTION("the copy") {
    run.KillPs(1);
    CHECK(run.Slots() == "0:- 0:-");
  }
  CHECK(run.keeper->view().generation() == 1);
}

TEST_CASE("a lost slot ends a run without checkpoints") {
  ViewKeeper::Settings settings = Settings(2, 0, 1);
  settings.recovery.clear_checkpoint();
  KeeperRun run(settings);
  run.StartAll();
  run.KillPs(1);
  CHECK(run.keeper->failure().ok());
  const uint64_t number = run.keeper->view().number();
  run.KillPs(0);
  CHECK(run.keeper->failure().message() ==
        "ps 0 was killed by SIGKILL, and nobody has a copy of slot 1, and there are no checkpoints "
        "to go back to (recovery.checkpoint)");
  run.StartPs(0);
  CHECK(run.keeper->view().number() == number);
}

TEST_CASE("a generation without a complete checkpoint begins from the initial parameters") {
  ViewKeeper::Settings settings = Settings(1, 0, 1);
  KeeperRun run(settings);
  run.StartAll();
  run.KillPs(0);
  CHECK(run.Slots() == "-:-");
  run.StartPs(0);
  CHECK(run.keeper->view().generation() == 2);
  CHECK(run.keeper->view().checkpoint().empty());
  run.Settle();
  CHECK(absl::StrContains(run.Events().back(), "went back to the initial parameters"));
}

TEST_CASE("a checkpoint that cannot be read is waited for") {
  KeeperRun run(Settings(1, 0, 1));
  run.StartAll();
  run.checkpoint_error = absl::UnavailableError("the disk is gone");
  run.KillPs(0);
  run.StartPs(0);
  run.keeper->Tick(run.now += absl::Seconds(29));
  CHECK(run.keeper->failure().ok());
  CHECK(run.keeper->view().generation() == 1);
  run.checkpoint_error = absl::OkStatus();
  run.keeper->Tick(run.now += absl::Milliseconds(100));
  CHECK(run.keeper->view().generation() == 2);
}

TEST_CASE("a checkpoint that cannot be read for long ends the run") {
  KeeperRun run(Settings(1, 0, 1));
  run.StartAll();
  run.checkpoint_error = absl::UnavailableError("the disk is gone");
  run.KillPs(0);
  run.StartPs(0);
  run.keeper->Tick(run.now += absl::Seconds(31));
  CHECK(absl::StrContains(run.keeper->failure().message(),
                          "no checkpoint can be read: the disk is gone"));
}

TEST_CASE("a run resumes from a checkpoint with a later generation than its") {
  ViewKeeper::Settings settings = Settings(1, 0, 4, Recovery::CONTINUE);
  settings.resume = At(400, 3);
  settings.resume->crew.Add()->mutable_rank()->Add(0);
  settings.resume->crew[0].add_rank(1);
  KeeperRun run(settings);
  run.StartAll();
  CHECK(run.keeper->view().generation() == 4);
  CHECK(run.keeper->view().checkpoint() == "iteration-400");
  CHECK(run.Crews() == "0:0, 1 400:0-3");
  CHECK(run.Workers() == "MMMM");
}

TEST_CASE("FAIL: a lost worker ends the run") {
  KeeperRun run(Settings(1, 0, 2, Recovery::FAIL));
  run.StartAll();
  run.KillWorker(1);
  CHECK(run.keeper->failure().message() == "worker 1 was killed by SIGKILL");
}

TEST_CASE("WAIT: a lost worker is waited for, and its replacement takes its place") {
  KeeperRun run(Settings(1, 0, 2));
  run.StartAll();
  run.Events();
  run.KillWorker(1);
  CHECK(run.Workers() == "MA");
  CHECK(run.keeper->view().worker(1).incarnation() == 0);
  run.now += absl::Seconds(1000);
  run.keeper->Tick(run.now);
  CHECK(run.Workers() == "MA");
  run.StartWorker(1);
  CHECK(run.Workers() == "MM");
  CHECK(run.keeper->view().worker(1).incarnation() == run.worker[1]);
  CHECK(run.Crews() == "0:0, 1");
  run.FollowOnce();
  CHECK(run.Events() ==
        Texts{"worker 1 was killed by SIGKILL; its replacement goes on in its place (1000 s)"});
}

TEST_CASE("CONTINUE: a lost worker leaves after the iteration of which its gradient is missing") {
  KeeperRun run(Settings(2, 0, 4, Recovery::CONTINUE));
  run.StartAll();
  run.Events();
  run.reports = false;
  run.KillWorker(2);
  CHECK(run.Workers() == "MMLM");
  CHECK(run.keeper->view().crew_changes());
  run.FollowOnce();
  CHECK(run.Workers() == "MMLM");
  run.reports = true;
  REQUIRE(run.Announce(run.PsState(0)).ok());
  CHECK(run.keeper->view().crew_changes());
  REQUIRE(run.Announce(run.PsState(1)).ok());
  CHECK_FALSE(run.keeper->view().crew_changes());
  CHECK(run.Workers() == "MMAM");
  // Slot 0 lacks it from iteration 10 on, slot 1 from 11 on.
  CHECK(run.Crews() == "0:0-3 11:0, 1, 3");
  run.Settle();
  CHECK(absl::StrContains(run.Events().at(0),
                          "worker 2 was killed by SIGKILL; the run goes on with 3 workers from "
                          "iteration 11 on"));

  run.reports = false;
  run.iteration = 30;
  run.StartWorker(2);
  run.FollowOnce();
  CHECK(run.Workers() == "MMJM");
  CHECK(run.keeper->view().crew_changes());
  CHECK(run.keeper->view().worker(2).incarnation() == run.worker[2]);
  run.reports = true;
  run.Settle();
  CHECK(run.Workers() == "MMMM");
  CHECK(run.Crews() == "0:0-3 11:0, 1, 3 33:0-3");
  CHECK(absl::StrContains(run.Events().back(),
                          "worker 2 is back; the run goes on with 4 workers from iteration 33 on"));
}

TEST_CASE("CONTINUE: several losses go together, and below min_workers the run waits") {
  ViewKeeper::Settings settings = Settings(1, 0, 4, Recovery::CONTINUE);
  settings.recovery.set_min_workers(2);
  KeeperRun run(settings);
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
  CHECK(run.Crews() == "0:0-3 11:2, 3");
  run.StartWorker(2);
  CHECK(run.Workers() == "AAMM");
  run.Settle();
  CHECK(run.Crews() == "0:0-3 11:2, 3");
  run.StartWorker(0);
  run.StartWorker(1);
  run.Settle();
  CHECK(run.Workers() == "MMMM");
  CHECK(run.Crews().ends_with("12:0-3"));
}

TEST_CASE("CONTINUE: a worker that never comes is given up") {
  KeeperRun run(Settings(1, 0, 2, Recovery::CONTINUE));
  run.StartPs(0);
  run.StartWorker(0);
  run.Settle();
  CHECK(run.Workers() == "MA");
  run.now += absl::Seconds(31);
  run.Settle();
  CHECK(run.Crews() == "0:0, 1 11:0");
}

TEST_CASE("CONTINUE: a joiner that dies before it counts is no joiner any more") {
  KeeperRun run(Settings(1, 0, 3, Recovery::CONTINUE));
  run.StartAll();
  run.KillWorker(1);
  run.Settle();
  run.reports = false;
  run.StartWorker(1);
  run.Settle();
  CHECK(run.Workers() == "MJM");
  run.KillWorker(1);
  CHECK(run.Workers() == "MAM");
  CHECK_FALSE(run.keeper->view().crew_changes());
}

TEST_CASE("positions count only for the view of which they are") {
  KeeperRun run(Settings(2, 1, 3, Recovery::CONTINUE));
  run.StartAll();
  run.reports = false;
  run.KillWorker(1);
  run.reports = true;
  const ProcessState slot0 = run.PsState(0);
  REQUIRE(run.Announce(slot0).ok());
  // The copy that takes slot 1 over has not taken the gradients that led to no update yet.
  const ProcessState slot1 = run.PsState(1);
  run.KillPs(1);
  CHECK(run.keeper->view().crew_changes());
  REQUIRE(run.Announce(slot0).ok());
  CHECK(run.Announce(slot1).code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(run.Announce(run.PsState(2)).ok());
  CHECK(run.keeper->view().crew_changes());
  run.Settle();
  CHECK_FALSE(run.keeper->view().crew_changes());
}

TEST_CASE("ASYNC: the crew stays as it is") {
  ViewKeeper::Settings settings = Settings(1, 0, 2, Recovery::CONTINUE);
  settings.synchronous = false;
  KeeperRun run(settings);
  run.StartAll();
  run.KillWorker(0);
  CHECK(run.Workers() == "AM");
  CHECK_FALSE(run.keeper->view().crew_changes());
  run.StartWorker(0);
  CHECK(run.Workers() == "MM");
  CHECK(run.Crews() == "0:0, 1");
  run.finished = {1};
  run.KillWorker(0);
  run.FollowOnce();
  CHECK_FALSE(run.keeper->finished());
  run.keeper->Tick(run.now += absl::Seconds(6));
  CHECK(run.keeper->finished());
}

TEST_CASE("the run has succeeded when all have finished") {
  KeeperRun run(Settings(1, 0, 2));
  run.StartAll();
  run.finished = {0};
  run.FollowOnce();
  CHECK(run.Workers() == "FM");
  CHECK_FALSE(run.keeper->finished());
  run.KillWorker(0);
  CHECK(run.Workers() == "FM");
  run.finished = {1};
  run.FollowOnce();
  CHECK(run.keeper->finished());
  CHECK(run.keeper->failure().ok());
}

TEST_CASE("a run that goes back starts workers again that had finished") {
  KeeperRun run(Settings(2, 0, 3, Recovery::CONTINUE));
  run.checkpoint = At(5);
  run.StartAll();
  run.KillWorker(2);
  run.Settle();
  CHECK(run.Crews() == "0:0-2 11:0, 1");
  run.finished = {0};
  run.FollowOnce();
  CHECK(run.Workers() == "FMA");
  const ProcessState finished = run.WorkerState(0);
  run.KillPs(0);
  run.KillPs(1);
  run.StartPs(0);
  run.StartPs(1);
  CHECK(run.keeper->view().generation() == 2);
  CHECK(run.Workers() == "AMA");
  CHECK(run.Crews() == "0:0, 1");
  // Its last message counts no more.
  CHECK(run.Announce(finished).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(run.Workers() == "AMA");
  run.finished = {};
  run.StartWorker(0);
  run.Settle();
  CHECK(run.Workers() == "MMA");
}

TEST_CASE("having finished before the run went back does not count") {
  KeeperRun run(Settings(1, 0, 1));
  run.StartAll();
  ProcessState finished = run.WorkerState(0);
  finished.set_finished(true);
  run.KillPs(0);
  run.StartPs(0);
  REQUIRE(run.Announce(finished).ok());
  CHECK(run.Workers() == "M");
  finished.set_view(run.keeper->view().number());
  REQUIRE(run.Announce(finished).ok());
  CHECK(run.Workers() == "F");
}

TEST_CASE("the crews before a checkpoint are those that it says") {
  KeeperRun run(Settings(1, 0, 3, Recovery::CONTINUE));
  run.StartAll();
  run.iteration = 100;
  run.KillWorker(2);
  run.Settle();
  CHECK(run.Crews() == "0:0-2 101:0, 1");
  run.checkpoint = At(150);
  run.checkpoint->crew = run.keeper->view().crew();
  run.iteration = 200;
  run.StartWorker(2);
  run.Settle();
  CHECK(run.Crews() == "0:0-2 101:0, 1 202:0-2");
  run.KillPs(0);
  run.StartPs(0);
  CHECK(run.Crews() == "0:0-2 101:0, 1 150:0-2");
}

TEST_CASE("a process that fails for good ends the run") {
  KeeperRun run(Settings(1, 0, 1));
  run.StartAll();
  ProcessState state = run.WorkerState(0);
  state.set_failure("the gradient has a NaN\n");
  REQUIRE(run.Announce(state).ok());
  CHECK(run.keeper->failure().message() == "worker 0: the gradient has a NaN\\n");
}

TEST_CASE("processes that do not belong to the run are refused") {
  KeeperRun run(Settings(1, 0, 1));
  ProcessState state;
  CHECK(run.Announce(state).code() == absl::StatusCode::kInvalidArgument);
  state.set_ps(0);
  state.set_incarnation(3);
  CHECK(absl::StrContains(run.Announce(state).message(), "ps 0 has another config"));
  state.set_config_fingerprint(7);
  state.set_incarnation(0);
  CHECK(run.Announce(state).code() == absl::StatusCode::kInvalidArgument);
  state.set_incarnation(3);
  state.set_ps(1);
  CHECK(run.Announce(state).message() == "there is no ps 1, allowed: 0 to 0");
  state.set_worker(4);
  CHECK(run.Announce(state).message() == "there is no worker 4, allowed: 0 to 0");
  CHECK(run.keeper->view().number() == 0);
}

TEST_CASE("a successor goes on from the latest view") {
  KeeperRun run(Settings(2, 0, 2));
  run.StartAll();
  run.fills = false;
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  const View last = run.keeper->view();
  run.keeper.emplace(run.settings, run.Newest(), last);
  CHECK(run.keeper->view().SerializeAsString() == last.SerializeAsString());
  run.keeper->Tick(run.now);
  CHECK(run.keeper->view().SerializeAsString() == last.SerializeAsString());
  SECTION("and takes what the processes say again") {
    run.fills = true;
    run.Settle();
    CHECK(run.Slots() == "0:1* 1:0*");
    CHECK(run.keeper->view().generation() == 1);
  }
  SECTION("and knows who was alive") {
    run.KillPs(1);
    CHECK(run.Slots() == "0:- 0:-");
    run.KillWorker(0);
    CHECK(run.Workers() == "AM");
  }
  SECTION("and goes back for a slot that its predecessor knew to be lost") {
    run.KillPs(0);
    const View lost = run.keeper->view();
    CHECK(run.Slots() == "-:- -:-");
    run.keeper.emplace(run.settings, run.Newest(), lost);
    run.StartPs(0);
    run.Settle();
    CHECK(run.Slots() == "0:1* 1:0*");
    CHECK(run.keeper->view().generation() == 2);
  }
}

}  // namespace ps
