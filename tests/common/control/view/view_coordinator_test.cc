#include "common/control/view/view_coordinator.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/common/control/view/coordinator_run.h"

namespace evenshard {
namespace {

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("view 1 comes when all ps are there") {
  CoordinatorRun run(Settings(2, 1, 2));
  run.StartPs(0);
  run.StartWorker(1);
  run.StartPs(1);
  CHECK(run.coordinator->view().number() == 0);
  run.StartPs(2);
  const View& view = run.coordinator->view();
  CHECK(view.number() == 1);
  CHECK(view.generation() == 1);
  CHECK(view.checkpoint().empty());
  CHECK(view.run() == 5);
  CHECK(run.Slots() == "0:1* 1:2*");
  CHECK(view.slot(0).primary().address() == "host:0");
  CHECK(view.slot(0).primary().incarnation() == run.ps[0]);
  CHECK(run.Workers() == "AM");
  CHECK(run.WorkerSets() == "0:0, 1");
  run.StartWorker(0);
  CHECK(run.Workers() == "MM");
  CHECK_FALSE(view.worker_set_changes());
}

TEST_CASE("a run begins without its spares after a while, and with a spare in a slot") {
  CoordinatorRun run(Settings(2, 1, 1));
  run.StartPs(0);
  run.coordinator->Tick(run.now + absl::Seconds(10));
  CHECK(run.coordinator->view().number() == 0);
  SECTION("without its spare") {
    run.StartPs(1);
    run.coordinator->Tick(run.now + absl::Seconds(10));
    CHECK(run.Slots() == "0:1* 1:0*");
  }
  SECTION("with the spare in slot 1") {
    run.StartPs(2);
    run.coordinator->Tick(run.now + absl::Seconds(10));
    CHECK(run.Slots() == "0:2* 2:0*");
  }
}

TEST_CASE("the views say what worker 0 has declared, and others must declare the same") {
  CoordinatorRun run(Settings(1, 0, 2));
  run.StartPs(0);
  run.StartWorker(0);
  run.StartWorker(1);
  ProcessState early = run.WorkerState(1);
  early.mutable_declaration()->mutable_model()->add_tensor()->set_name("v");
  CHECK(run.Announce(early).ok());
  CHECK_FALSE(run.coordinator->view().has_declaration());
  ProcessState state = run.WorkerState(0);
  state.mutable_declaration()->mutable_model()->add_tensor()->set_name("w");
  CHECK(run.Announce(state).ok());
  CHECK(run.coordinator->view().declaration().model().tensor(0).name() == "w");
  const uint64_t number = run.coordinator->view().number();
  CHECK(run.Announce(state).ok());
  CHECK(run.coordinator->view().number() == number);

  ProcessState other = run.WorkerState(1);
  other.mutable_declaration()->mutable_model()->add_tensor()->set_name("v");
  const absl::Status refused = run.Announce(other);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK_THAT(std::string(refused.message()),
             Catch::Matchers::Contains("worker 1 has another model than worker 0: in the run "
                                       "tensor 0 is w [], and v [] there"));

  // A successor knows it from the view.
  ViewCoordinator successor(run.settings, run.Newest(), run.coordinator->view());
  CHECK(absl::IsFailedPrecondition(successor.Seen(other, run.now)));
  CHECK(successor.Seen(state, run.now).ok());
}

TEST_CASE("without replicas no slot has a copy") {
  ViewCoordinator::Settings settings = Settings(2, 1, 1);
  settings.recovery.set_replicas(0);
  CoordinatorRun run(settings);
  run.StartAll();
  CHECK(run.Slots() == "0:- 1:-");
  run.KillPs(1);
  CHECK(run.Slots() == "0:- 2:-");
  CHECK(run.coordinator->view().generation() == 2);
}

TEST_CASE("workers that come one shortly after another come with one view") {
  CoordinatorRun run(Settings(1, 0, 4));
  run.StartPs(0);
  run.StartWorker(0);
  CHECK(run.Workers() == "MAAA");
  run.StartWorker(1);
  run.StartWorker(2);
  CHECK(run.Workers() == "MAAA");
  run.coordinator->Tick(run.now += absl::Milliseconds(100));
  CHECK(run.Workers() == "MMMA");
  run.StartWorker(3);
  CHECK(run.Workers() == "MMMM");
}

TEST_CASE("a copy takes over, the process comes back, is filled and holds its slot again") {
  CoordinatorRun run(Settings(2, 0, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:0*");
  run.Events();
  run.fills = run.hands_over = false;
  run.KillPs(1);
  CHECK(run.Slots() == "0:- 0:-");
  CHECK(run.coordinator->view().generation() == 1);
  CHECK(run.Events().empty());  // the worker does not follow yet
  run.now += absl::Milliseconds(250);
  run.FollowOnce();
  CHECK(run.Events() ==
        Texts{"ps 1 was killed by SIGKILL; slot 0 has no replica now; ps 0 took slot 1"
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
  CoordinatorRun run(Settings(2, 0, 1));
  run.checkpoint = At(400);
  run.StartAll();
  run.fills = false;
  run.KillPs(1);
  run.StartPs(1);
  run.KillPs(0);
  CHECK(run.Slots() == "-:- -:-");
  CHECK(run.coordinator->view().generation() == 1);
  run.StartPs(0);
  CHECK(run.Slots() == "0:1* 1:0*");
  CHECK(run.coordinator->view().generation() == 2);
  CHECK(run.coordinator->view().checkpoint() == "iteration-400");
  run.now += absl::Seconds(1);
  run.Settle();
  CHECK(absl::StrContains(run.Events().back(),
                          "went back to the checkpoint of iteration 400, because ps 0 was killed "
                          "by SIGKILL, and no process has a replica of slot 1"));
}

TEST_CASE("what a primary says of an earlier copy does not count for the present one") {
  CoordinatorRun run(Settings(2, 0, 1));
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
  CoordinatorRun run(Settings(2, 0, 1));
  run.StartAll();
  const ProcessState old = run.PsState(1);
  run.StartPs(1);
  CHECK(run.Slots() == "0:1 0:1");
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:0*");
  CHECK(run.coordinator->view().slot(1).primary().incarnation() == run.ps[1]);
  CHECK(run.Announce(old).code() == absl::StatusCode::kFailedPrecondition);
  CHECK(run.coordinator->view().slot(1).primary().incarnation() == run.ps[1]);
}

TEST_CASE("a spare relieves the process that took a slot over") {
  CoordinatorRun run(Settings(3, 1, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:2* 2:3*");
  run.KillPs(1);
  // The process that holds slots 1 and 2 gives slot 2 to the spare, which has its copy.
  CHECK(run.Slots() == "0:3 2:0 2>3*");
  run.Settle();
  CHECK(run.Slots() == "0:3* 2:0* 3:2*");
  run.StartPs(1);
  run.Settle();
  CHECK(run.coordinator->view().generation() == 1);
  CHECK(run.Slots() == "0:3* 2:0* 3:2*");
}

TEST_CASE("a slot goes without a copy rather than give a process a third slot") {
  CoordinatorRun run(Settings(3, 0, 1));
  run.StartAll();
  CHECK(run.Slots() == "0:1* 1:2* 2:0*");
  run.KillPs(2);
  run.Settle();
  run.now += absl::Seconds(3600);
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:- 0:-");
  run.StartPs(2);
  run.Settle();
  CHECK(run.Slots() == "0:1* 1:2* 2:0*");
}

TEST_CASE("a process that dies while it hands over is replaced by the copy") {
  CoordinatorRun run(Settings(2, 0, 1));
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
  CHECK(run.coordinator->view().generation() == 1);
}

TEST_CASE("a lost slot ends a run without checkpoints") {
  ViewCoordinator::Settings settings = Settings(2, 0, 1);
  settings.recovery.clear_checkpoint();
  CoordinatorRun run(settings);
  run.StartAll();
  run.KillPs(1);
  CHECK(run.coordinator->failure().ok());
  const uint64_t number = run.coordinator->view().number();
  run.KillPs(0);
  CHECK(run.coordinator->failure().message() ==
        "ps 0 was killed by SIGKILL, and no process has a replica of slot 1, and there are no "
        "checkpoints "
        "to go back to (recovery.checkpoint)");
  run.StartPs(0);
  CHECK(run.coordinator->view().number() == number);
}

TEST_CASE("a generation without a complete checkpoint begins from the initial parameters") {
  ViewCoordinator::Settings settings = Settings(1, 0, 1);
  CoordinatorRun run(settings);
  run.StartAll();
  run.KillPs(0);
  CHECK(run.Slots() == "-:-");
  run.StartPs(0);
  CHECK(run.coordinator->view().generation() == 2);
  CHECK(run.coordinator->view().checkpoint().empty());
  run.Settle();
  CHECK(absl::StrContains(run.Events().back(), "went back to the initial parameters"));
}

TEST_CASE("a checkpoint that cannot be read is waited for") {
  CoordinatorRun run(Settings(1, 0, 1));
  run.StartAll();
  run.checkpoint_error = absl::UnavailableError("the disk is gone");
  run.KillPs(0);
  run.StartPs(0);
  run.coordinator->Tick(run.now += absl::Seconds(29));
  CHECK(run.coordinator->failure().ok());
  CHECK(run.coordinator->view().generation() == 1);
  run.checkpoint_error = absl::OkStatus();
  run.coordinator->Tick(run.now += absl::Milliseconds(100));
  CHECK(run.coordinator->view().generation() == 2);
}

TEST_CASE("a checkpoint that cannot be read for long ends the run") {
  CoordinatorRun run(Settings(1, 0, 1));
  run.StartAll();
  run.checkpoint_error = absl::UnavailableError("the disk is gone");
  run.KillPs(0);
  run.StartPs(0);
  run.coordinator->Tick(run.now += absl::Seconds(31));
  CHECK(absl::StrContains(run.coordinator->failure().message(),
                          "no checkpoint can be read: the disk is gone"));
}

TEST_CASE("an older checkpoint is used if the newest cannot be read for long") {
  CoordinatorRun run(Settings(1, 0, 1));
  run.StartAll();
  run.checkpoint_error = absl::UnavailableError("Input/output error");
  run.older_checkpoint = At(40);
  run.KillPs(0);
  run.StartPs(0);
  run.coordinator->Tick(run.now += absl::Seconds(29));
  CHECK(run.coordinator->view().generation() == 1);
  run.coordinator->Tick(run.now += absl::Seconds(2));
  CHECK(run.coordinator->failure().ok());
  CHECK(run.coordinator->view().generation() == 2);
  CHECK(run.coordinator->view().checkpoint() == "iteration-40");
}

TEST_CASE("an older checkpoint is used before the workers run into their deadline") {
  ViewCoordinator::Settings settings = Settings(1, 0, 1);
  settings.exchange = absl::Seconds(20);
  CoordinatorRun run(settings);
  run.StartAll();
  run.checkpoint_error = absl::UnavailableError("Input/output error");
  run.older_checkpoint = At(40);
  run.KillPs(0);
  run.StartPs(0);
  run.coordinator->Tick(run.now += absl::Seconds(6));
  CHECK(run.coordinator->view().checkpoint() == "iteration-40");
}

TEST_CASE("the run goes back, once, if nobody has what the workers had registered") {
  ViewCoordinator::Settings settings = Settings(2, 0, 1);
  CoordinatorRun run(settings);
  run.StartAll();
  const uint64_t generation = run.coordinator->view().generation();
  run.checkpoint = At(40);
  ProcessState state = run.PsState(1);
  state.set_lost_state(generation);
  REQUIRE(run.Announce(state).ok());
  CHECK(run.coordinator->view().generation() == generation);  // it has not slot 0
  state = run.PsState(0);
  state.set_lost_state(generation);
  REQUIRE(run.Announce(state).ok());
  CHECK(run.coordinator->failure().ok());
  CHECK(run.coordinator->view().checkpoint() == "iteration-40");
  CHECK(run.coordinator->view().generation() == generation + 1);
  // It comes late.
  state.set_view(run.coordinator->view().number());
  REQUIRE(run.Announce(state).ok());
  CHECK(run.coordinator->view().generation() == generation + 1);
}

TEST_CASE("an older checkpoint is used if a process cannot read the one that the run is at") {
  ViewCoordinator::Settings settings = Settings(2, 0, 1);
  settings.resume = At(50);
  CoordinatorRun run(settings);
  run.StartAll();
  ProcessState state = run.PsState(1);
  state.mutable_unreadable()->set_checkpoint("iteration-50");
  state.mutable_unreadable()->set_why("shard-1 is damaged");
  SECTION("and there is one") {
    run.checkpoint = At(40);
    REQUIRE(run.Announce(state).ok());
    CHECK(run.coordinator->failure().ok());
    CHECK(run.coordinator->view().checkpoint() == "iteration-40");
    // It comes late.
    state.set_view(run.coordinator->view().number());
    REQUIRE(run.Announce(state).ok());
    CHECK(run.coordinator->view().generation() == 3);
  }
  SECTION("and else the run ends") {
    run.checkpoint = At(50);
    REQUIRE(run.Announce(state).ok());
    run.coordinator->Tick(run.now += absl::Seconds(29));
    CHECK(run.coordinator->failure().ok());
    run.coordinator->Tick(run.now += absl::Seconds(2));
    CHECK(run.coordinator->failure().message() ==
          "ps 1 cannot read the checkpoint iteration-50: shard-1 is damaged");
  }
  SECTION("but not if the process can read it after all") {
    const uint64_t generation = run.coordinator->view().generation();
    run.checkpoint = At(50);
    for (int i = 0; i < 2; ++i) {
      REQUIRE(run.Announce(state).ok());
      run.Pass(absl::Seconds(20));
    }
    CHECK(run.coordinator->failure().ok());
    CHECK(run.coordinator->view().generation() == generation);
  }
  SECTION("but not if the process is gone by then") {
    run.checkpoint_error = absl::UnavailableError("Input/output error");
    REQUIRE(run.Announce(state).ok());
    CHECK(run.coordinator->view().checkpoint() == "iteration-50");
    run.KillPs(1);
    run.checkpoint_error = absl::OkStatus();
    run.checkpoint = At(50);
    run.StartPs(1);
    run.Settle();
    CHECK(run.coordinator->failure().ok());
  }
}

TEST_CASE("a run resumes from a checkpoint with a later generation than its") {
  ViewCoordinator::Settings settings = Settings(1, 0, 4, Recovery::CONTINUE);
  settings.resume = At(400, 3);
  settings.resume->worker_set.Add()->mutable_rank()->Add(0);
  settings.resume->worker_set[0].add_rank(1);
  CoordinatorRun run(settings);
  run.StartAll();
  CHECK(run.coordinator->view().generation() == 4);
  CHECK(run.coordinator->view().checkpoint() == "iteration-400");
  CHECK(run.WorkerSets() == "0:0, 1 400:0-3");
  CHECK(run.Workers() == "MMMM");
}

TEST_CASE("the worker sets before a checkpoint are those that it says") {
  CoordinatorRun run(Settings(1, 0, 3, Recovery::CONTINUE));
  run.StartAll();
  run.iteration = 100;
  run.KillWorker(2);
  run.Settle();
  CHECK(run.WorkerSets() == "0:0-2 101:0, 1");
  run.checkpoint = At(150);
  run.checkpoint->worker_set = run.coordinator->view().worker_set();
  run.iteration = 200;
  run.StartWorker(2);
  run.Settle();
  CHECK(run.WorkerSets() == "0:0-2 101:0, 1 202:0-2");
  run.KillPs(0);
  run.StartPs(0);
  CHECK(run.WorkerSets() == "0:0-2 101:0, 1 150:0-2");
}

TEST_CASE("a process that fails for good ends the run") {
  CoordinatorRun run(Settings(1, 0, 1));
  run.StartAll();
  ProcessState state = run.WorkerState(0);
  state.set_failure("the gradient has a NaN\n");
  REQUIRE(run.Announce(state).ok());
  CHECK(run.coordinator->failure().message() == "worker 0: the gradient has a NaN\\n");
}

TEST_CASE("processes that do not belong to the run are refused") {
  CoordinatorRun run(Settings(1, 0, 1));
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
  CHECK(run.coordinator->view().number() == 0);
}

TEST_CASE("a successor goes on from the latest view") {
  CoordinatorRun run(Settings(2, 0, 2));
  run.StartAll();
  run.fills = false;
  run.KillPs(1);
  run.StartPs(1);
  run.Settle();
  const View last = run.coordinator->view();
  run.coordinator.emplace(run.settings, run.Newest(), last);
  CHECK(run.coordinator->view().SerializeAsString() == last.SerializeAsString());
  run.coordinator->Tick(run.now);
  CHECK(run.coordinator->view().SerializeAsString() == last.SerializeAsString());
  SECTION("and takes what the processes say again") {
    run.fills = true;
    run.Settle();
    CHECK(run.Slots() == "0:1* 1:0*");
    CHECK(run.coordinator->view().generation() == 1);
  }
  SECTION("and knows who was alive") {
    run.KillPs(1);
    CHECK(run.Slots() == "0:- 0:-");
    run.KillWorker(0);
    CHECK(run.Workers() == "AM");
  }
  SECTION("and goes back for a slot that its predecessor knew to be lost") {
    run.KillPs(0);
    const View lost = run.coordinator->view();
    CHECK(run.Slots() == "-:- -:-");
    run.coordinator.emplace(run.settings, run.Newest(), lost);
    run.StartPs(0);
    run.Settle();
    CHECK(run.Slots() == "0:1* 1:0*");
    CHECK(run.coordinator->view().generation() == 2);
  }
}

}  // namespace evenshard
