#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/common/control/view/coordinator_run.h"

namespace evenshard {
namespace {

using Texts = std::vector<std::string>;

ViewCoordinator::Settings RingSettings(int workers, Recovery::WorkerLoss worker_loss) {
  ViewCoordinator::Settings settings = Settings(0, 0, workers, worker_loss);
  settings.recovery.set_replicas(0);
  return settings;
}

}  // namespace

TEST_CASE("the workers of a ring are members when all of them follow its views") {
  CoordinatorRun run(RingSettings(3, Recovery::WAIT));
  run.StartWorker(0);
  run.StartWorker(1);
  CHECK(run.Settle());
  CHECK(run.coordinator->view().generation() == 1);
  CHECK(run.Workers() == "AAA");
  CHECK(run.WorkerSets() == "0:0-2");
  run.worker[2] = 50;
  ProcessState unaware = run.WorkerState(2);
  unaware.set_view(0);  // it has not heard of the view yet
  CHECK(run.Announce(unaware).ok());
  CHECK(run.Workers() == "AAA");
  CHECK(run.Settle());
  CHECK(run.Workers() == "MMM");
  CHECK(run.coordinator->view().worker(2).incarnation() == run.worker[2]);
}

TEST_CASE("a lost worker of a ring takes all back to a checkpoint, with its replacement") {
  CoordinatorRun run(RingSettings(3, Recovery::WAIT));
  run.StartAll();
  run.checkpoint = At(20);
  run.checkpoint->worker_set.Add()->add_rank(0);
  run.KillWorker(1);
  const View& view = run.coordinator->view();
  CHECK(view.generation() == 2);
  CHECK(view.checkpoint() == "iteration-20");
  CHECK(run.WorkerSets() == "0:0 20:0-2");
  CHECK(run.Workers() == "AAA");
  CHECK(run.Settle());
  CHECK(run.Workers() == "AAA");  // however long it takes
  run.StartWorker(1);
  CHECK(run.Settle());
  CHECK(run.Workers() == "MMM");
  CHECK(view.generation() == 2);
  const Texts events = run.Events();
  REQUIRE(events.size() == 1);
  CHECK(events[0].find("went back to the checkpoint of iteration 20 with 3 workers, because worker "
                       "1 was killed by SIGKILL") == 0);
}

TEST_CASE("a worker that says what it said before the loss is not taken for a member") {
  CoordinatorRun run(RingSettings(2, Recovery::WAIT));
  run.StartAll();
  ProcessState old = run.WorkerState(0);
  run.KillWorker(1);
  run.StartWorker(1);
  CHECK(run.Announce(run.WorkerState(1)).ok());
  CHECK(run.Announce(old).ok());
  CHECK(run.Workers() == "AA");
  CHECK(run.Announce(run.WorkerState(0)).ok());
  CHECK(run.Workers() == "MM");
}

TEST_CASE("under CONTINUE a ring goes on without lost workers while enough are left") {
  ViewCoordinator::Settings settings = RingSettings(4, Recovery::CONTINUE);
  settings.recovery.set_min_workers(3);
  CoordinatorRun run(settings);
  run.StartAll();
  run.KillWorker(2);
  CHECK(run.WorkerSets() == "0:0, 1, 3");
  CHECK(run.Settle());
  CHECK(run.Workers() == "MMAM");
  run.checkpoint = At(7, 2);
  *run.checkpoint->worker_set.Add() = run.coordinator->view().worker_set(0);
  run.KillWorker(3);  // which is waited for
  CHECK(run.WorkerSets() == "0:0, 1, 3 7:0, 1, 3");
  run.StartWorker(3);
  CHECK(run.Settle());
  CHECK(run.Workers() == "MMAM");
  CHECK(run.coordinator->view().generation() == 3);
}

TEST_CASE("two workers of a ring are left, whatever min_workers says") {
  CoordinatorRun run(RingSettings(3, Recovery::CONTINUE));
  run.StartAll();
  run.KillWorker(0);
  CHECK(run.WorkerSets() == "0:1, 2");
  run.KillWorker(1);  // before the ring is formed
  CHECK(run.WorkerSets() == "0:1, 2");
  CHECK(run.coordinator->view().generation() == 2);
  run.StartWorker(1);
  CHECK(run.Settle());
  CHECK(run.Workers() == "AMM");
}

TEST_CASE("a worker that is lost before the ring is formed is left out under CONTINUE") {
  CoordinatorRun run(RingSettings(4, Recovery::CONTINUE));
  run.StartAll();
  run.KillWorker(0);
  run.KillWorker(1);
  CHECK(run.WorkerSets() == "0:2, 3");
  CHECK(run.Settle());
  CHECK(run.Workers() == "AAMM");
}

TEST_CASE("with worker_loss FAIL a lost worker ends the run of a ring") {
  CoordinatorRun run(RingSettings(3, Recovery::FAIL));
  run.StartAll();
  run.KillWorker(2);
  CHECK(run.coordinator->failure().message() == "worker 2 was killed by SIGKILL");
}

TEST_CASE("a ring without checkpoints goes back to the initial parameters") {
  ViewCoordinator::Settings settings = RingSettings(2, Recovery::WAIT);
  settings.recovery.clear_checkpoint();
  CoordinatorRun run(settings);
  run.checkpoint = At(20);  // must not be asked for
  run.StartAll();
  run.KillWorker(0);
  CHECK(run.coordinator->view().generation() == 2);
  CHECK(run.coordinator->view().checkpoint().empty());
}

TEST_CASE("a worker of a ring that ends before all have trained to the end is a loss") {
  CoordinatorRun run(RingSettings(2, Recovery::WAIT));
  run.StartAll();
  run.finished = {0};
  CHECK(run.Settle());
  CHECK(run.Workers() == "FM");
  CHECK_FALSE(run.coordinator->finished());
  run.KillWorker(0);
  CHECK(run.coordinator->view().generation() == 2);
  run.StartWorker(0);
  CHECK(run.Settle());
  run.finished = {0, 1};
  CHECK(run.Settle());
  CHECK(run.coordinator->finished());
  run.KillWorker(0);
  CHECK(run.coordinator->view().generation() == 2);
}

TEST_CASE("a ring may resume with another number of workers than the checkpoint had") {
  ViewCoordinator::Settings settings = RingSettings(3, Recovery::WAIT);
  settings.resume = At(12, 4);
  WorkerSet* const before = settings.resume->worker_set.Add();
  for (const int rank : {0, 1, 2, 3}) before->add_rank(rank);
  CoordinatorRun run(settings);
  run.StartAll();
  CHECK(run.coordinator->view().generation() == 5);
  CHECK(run.coordinator->view().checkpoint() == "iteration-12");
  CHECK(run.WorkerSets() == "0:0-3 12:0-2");
  CHECK(run.Workers() == "MMM");
}

}  // namespace evenshard
