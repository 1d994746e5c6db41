// What every coordinator does, seen by the processes of a run through their ViewLinks. Linked with
// each implementation of ViewBench.

#include <catch2/catch.hpp>
#include <string>

#include "tests/common/control/conformance/acted_run.h"
#include "tests/common/control/conformance/view_bench.h"
#include "tests/testing/await.h"

// Ends the test case if the bench cannot be made.
#define ACTED_RUN(run, settings)                                       \
  std::unique_ptr<ViewBench> bench_of_##run = MakeViewBench(settings); \
  if (bench_of_##run == nullptr) return;                               \
  ActedRun run(settings, std::move(bench_of_##run))

namespace evenshard {

namespace {

using Catch::Contains;

constexpr auto Ps = ActedRun::Ps;
constexpr auto Worker = ActedRun::Worker;

ViewCoordinator::Settings Settings(int slots, int workers, int replicas) {
  ViewCoordinator::Settings settings{
      .slots = slots, .workers = workers, .config_fingerprint = 42, .run = 7};
  settings.recovery.set_replicas(replicas);
  settings.recovery.set_silence_seconds(4);
  settings.recovery.set_worker_loss(Recovery::WAIT);
  return settings;
}

}  // namespace

TEST_CASE("the first view comes when all shards are there, and everyone sees it") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 1);
  ACTED_RUN(run, settings);
  run.Start(Ps(0));
  run.Start(Worker(0));
  AwaitTrue([&] { return run[Ps(0)].HoldsRoles() && run[Worker(0)].HoldsRoles(); });
  CHECK(run[Ps(0)].view().number() == 0);
  run.Start(Ps(1));
  run.Await("0:1* 1:0*", &ActedRun::Slots);
  run.Await("M", &ActedRun::Workers);
  const View view = run[Ps(0)].view();
  CHECK(view.generation() == 1);
  CHECK(view.run() != 0);
  CHECK(view.slot(1).primary().incarnation() == run[Ps(1)].incarnation());
  CHECK(view.slot(1).primary().address() == "host-1:1");
}

TEST_CASE("a shard that dies is replaced by its copy, and has its slot again when it is back") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 1);
  ACTED_RUN(run, settings);
  run.StartAll();
  const uint64_t before = run[Ps(0)].view().number();
  run.Kill(Ps(1));
  run.Await("0:- 0:-", &ActedRun::Slots);
  CHECK(run[Ps(0)].view().number() > before);
  CHECK(run[Ps(0)].view().generation() == 1);
  run.Start(Ps(1));
  // Filled, made complete and handed over, each in a view of its own.
  run.Await("0:1* 1:0*", &ActedRun::Slots);
  CHECK(run[Ps(1)].view().generation() == 1);
  CHECK(run[Ps(1)].view().slot(1).primary().incarnation() == run[Ps(1)].incarnation());
}

TEST_CASE("a shard that is paused answers nobody any more when another has its slot") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 1);
  ACTED_RUN(run, settings);
  run.StartAll();
  CHECK(run[Ps(1)].HoldsRoles());
  run.Cut(Ps(1));
  AwaitTrue([&] {
    const bool taken_over = ActedRun::Slots(run[Worker(0)].view()) == "0:- 0:-";
    if (taken_over) CHECK_FALSE(run.Answers(Ps(1)));
    return taken_over;
  });
  run.bench().Mend(Ps(1));
  AwaitTrue([&] { return run[Ps(1)].end().has_value(); });
  CHECK_FALSE(run.Answers(Ps(1)));
}

TEST_CASE("a slot without a copy and without checkpoints fails the run, for everyone") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 0);
  ACTED_RUN(run, settings);
  run.StartAll();
  run.Kill(Ps(1));
  for (const BenchRole role : {Ps(0), Worker(0)}) {
    CHECK_THAT(run.AwaitFailure(role), Contains("ps 1"));
  }
}

TEST_CASE("FAIL: a lost worker fails the run, for everyone") {
  ViewCoordinator::Settings settings = Settings(1, 2, 0);
  settings.recovery.set_worker_loss(Recovery::FAIL);
  ACTED_RUN(run, settings);
  run.StartAll();
  run.Kill(Worker(1));
  for (const BenchRole role : {Ps(0), Worker(0)}) {
    CHECK_THAT(run.AwaitFailure(role), Contains("worker 1"));
  }
}

TEST_CASE("WAIT: a lost worker is absent until its replacement has come") {
  const ViewCoordinator::Settings settings = Settings(1, 2, 0);
  ACTED_RUN(run, settings);
  run.StartAll();
  run.Kill(Worker(1));
  run.Await("MA", &ActedRun::Workers);
  run.Await("0 1", &ActedRun::WorkerSet);
  run.Start(Worker(1));
  run.Await("MM", &ActedRun::Workers);
  CHECK(run[Worker(0)].view().worker(1).incarnation() == run[Worker(1)].incarnation());
}

TEST_CASE("CONTINUE: a lost worker leaves the worker set, and joins it again") {
  ViewCoordinator::Settings settings = Settings(2, 2, 0);
  settings.recovery.set_worker_loss(Recovery::CONTINUE);
  ACTED_RUN(run, settings);
  run.StartAll();
  run.Kill(Worker(0));
  run.Await("1", &ActedRun::WorkerSet);
  run.Await("AM", &ActedRun::Workers);
  run.Start(Worker(0));
  run.Await("0 1", &ActedRun::WorkerSet);
  run.Await("MM", &ActedRun::Workers);
}

TEST_CASE("a run whose workers have finished goes on without them") {
  const ViewCoordinator::Settings settings = Settings(2, 2, 1);
  ACTED_RUN(run, settings);
  run.StartAll();
  run[Worker(0)].Finish();
  run[Worker(1)].Finish();
  run.Await("FF", &ActedRun::Workers);
  run.Kill(Worker(0));
  run.Kill(Worker(1));
  run.Kill(Ps(1));
  run.Await("0:- 0:-", &ActedRun::Slots);
  CHECK(ActedRun::Workers(run[Ps(0)].view()) == "FF");
  CHECK_FALSE(run[Ps(0)].end().has_value());
}

TEST_CASE("a process with another config is refused, and the others go on") {
  const ViewCoordinator::Settings settings = Settings(1, 2, 0);
  ACTED_RUN(run, settings);
  run.Start(Ps(0));
  run.Start(Worker(0));
  run.Start(Worker(1), settings.config_fingerprint + 1);
  AwaitTrue([&] { return run[Worker(1)].end().has_value(); });
  CHECK(absl::IsFailedPrecondition(*run[Worker(1)].end()));
  CHECK_THAT(std::string(run[Worker(1)].end()->message()), Contains("config"));
  run.Kill(Worker(1));
  run.Start(Worker(1));
  run.Await("MM", &ActedRun::Workers);
}

TEST_CASE("late answers change nothing") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 1);
  ACTED_RUN(run, settings);
  run.bench().SlowDown(absl::Milliseconds(60));
  run.StartAll();
  run.Kill(Ps(1));
  run.Await("0:- 0:-", &ActedRun::Slots);
  run.Start(Ps(1));
  run.Await("0:1* 1:0*", &ActedRun::Slots);
  CHECK(run[Ps(1)].view().generation() == 1);
}

TEST_CASE("the coordinator goes away and comes back, and everyone keeps what it has") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 1);
  ACTED_RUN(run, settings);
  if (!run.bench().CanGoAway()) return;
  run.StartAll();
  const View before = run[Worker(0)].view();
  run.bench().TakeAway();
  run.bench().BringBack();
  AwaitTrue([&] { return run[Ps(0)].HoldsRoles() && run[Ps(1)].HoldsRoles(); });
  CHECK(run[Worker(0)].view().number() == before.number());
  run.Kill(Ps(1));
  run.Await("0:- 0:-", &ActedRun::Slots);
  CHECK(run[Worker(0)].view().generation() == 1);
  CHECK(run[Worker(0)].view().run() == before.run());
}

TEST_CASE("a coordinator that is not up yet is waited for") {
  const ViewCoordinator::Settings settings = Settings(1, 1, 0);
  ACTED_RUN(run, settings);
  if (!run.bench().CanGoAway()) return;
  run.bench().TakeAway();
  run.Start(Ps(0));
  run.Start(Worker(0));
  CHECK_FALSE(run[Ps(0)].HoldsRoles());
  run.bench().BringBack();
  run.Await("0:-", &ActedRun::Slots);
  run.Await("M", &ActedRun::Workers);
}

TEST_CASE("the death of the process that makes the views is a death like others") {
  const ViewCoordinator::Settings settings = Settings(2, 1, 1);
  ACTED_RUN(run, settings);
  if (!run.bench().CanGoAway()) return;
  run.StartAll();
  const View before = run[Worker(0)].view();
  AwaitTrue([&] { return run.bench().Coordinator().has_value(); });
  const BenchRole first = *run.bench().Coordinator();
  const BenchRole other = Ps(1 - first.index);
  SECTION("it dies") { run.Kill(first); }
  SECTION("it is paused") { run.Cut(first); }
  run.Await(absl::StrCat(other.index, ":- ", other.index, ":-"), &ActedRun::Slots);
  CHECK(run[other].view().run() == before.run());
  CHECK(run[other].view().number() > before.number());
  if (run.bench().Coordinator() == first) run.bench().Mend(first);
  AwaitTrue([&] { return run.bench().Coordinator() == other; });
}

}  // namespace evenshard
