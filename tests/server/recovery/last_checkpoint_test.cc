// The checkpoint that a run leaves when it is over.

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "server/recovery/checkpointer.h"
#include "tests/server/recovery/checkpointer_fixture.h"

namespace evenshard {

class LastCheckpoint : public CheckpointerFixture {
 public:
  // All workers have finished.
  void FinishRun() {
    view.set_finished(true);
    Publish();
  }
  // Ends the processes, as SIGTERM does.
  void EndAll(std::vector<int> order = {0, 1}) {
    for (const int process : order) hosts[process]->End(clock.Now() + absl::Seconds(5));
  }
  size_t Count() {
    const auto found = CheckpointFolder(&disk, folder).List();
    REQUIRE(found.ok());
    return found->size();
  }
};

TEST_CASE_METHOD(LastCheckpoint, "what a run has trained is in its last checkpoint") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=3", "optimizer.kind=ADAM"});
  const uint64_t iterations = GENERATE(1, 3, 5);
  CAPTURE(iterations);
  for (uint64_t iteration = 0; iteration < iterations; ++iteration) TrainAll(iteration);
  SECTION("also if the one before is still being written") {}
  SECTION("once") { WorkAll(); }
  FinishRun();
  EndAll();
  CHECK(Newest() == CheckpointId{1, iterations});
  CHECK(Restored({1, iterations}) == States());
  CHECK(Stats().checkpoint_failures() == 0);
}

TEST_CASE_METHOD(LastCheckpoint, "a process that ends while a run goes on writes no last one") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=3"});
  for (const uint64_t iteration : {0, 1, 2, 3}) TrainAll(iteration);
  WorkAll();
  EndAll();
  CHECK(Newest() == CheckpointId{1, 3});
  CHECK(Count() == 1);
}

TEST_CASE_METHOD(LastCheckpoint, "with replicas the primaries write it, and it has the same bits") {
  Begin({"recovery.checkpoint.every_iterations=3", "optimizer.kind=ADAM"});
  for (const uint64_t iteration : {0, 1, 2, 3}) {
    TrainAll(iteration);
    net.Run();  // to the replicas
  }
  FinishRun();
  EndAll();
  CHECK(Newest() == CheckpointId{1, 4});
  CHECK(Restored({1, 4}) == States());
}

TEST_CASE_METHOD(LastCheckpoint, "a cut at the end that a slot has left out is written") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1"});
  TrainAll(0);
  Work(0);
  TrainAll(1);  // slot 1 still has to write the cut before
  Work(0);
  CHECK(Stats(1).checkpoint_failures() == 1);
  FinishRun();
  EndAll();
  CHECK(Newest() == CheckpointId{1, 2});
  CHECK(Restored({1, 2}) == States());
}

TEST_CASE_METHOD(LastCheckpoint, "old ones are removed, whichever slot ends last") {
  Begin({"recovery.replicas=0", "recovery.checkpoint={every_iterations: 1 keep: 2}"});
  for (const uint64_t iteration : {0, 1, 2}) {
    TrainAll(iteration);
    WorkAll();
  }
  for (const uint64_t iteration : {3, 4}) TrainAll(iteration);
  FinishRun();
  EndAll(GENERATE(std::vector{0, 1}, std::vector{1, 0}));
  CHECK(Newest() == CheckpointId{1, 5});
  CHECK(Count() == 2);
}

TEST_CASE_METHOD(LastCheckpoint, "a run that has trained nothing leaves its folder as it was") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2"});
  SECTION("after its checkpoint") {
    for (const uint64_t iteration : {0, 1}) TrainAll(iteration);
    WorkAll();
    view.set_generation(2);
    view.set_checkpoint(CheckpointId{1, 2}.ToString());
    FinishRun();
    EndAll();
    CHECK(Newest() == CheckpointId{1, 2});
    CHECK(Count() == 1);
  }
  SECTION("from the beginning") {
    FinishRun();
    EndAll();
    CHECK(Count() == 0);
  }
}

TEST_CASE_METHOD(LastCheckpoint,
                 "what was trained is in the last one wherever a slot has moved to") {
  const std::string update = GENERATE("policy: SYNC", "policy: ASYNC");
  const std::string every = update == "policy: SYNC" ? "every_iterations: 3" : "every_seconds: 10";
  Begin({"recovery.checkpoint={" + every + "}", "update={" + update + "}"});
  WorkAll();
  clock.Advance(absl::Seconds(100));
  for (const uint64_t iteration : {0, 1, 2, 3}) {
    TrainAll(iteration);
    net.Run();
  }
  FinishRun();
  const int slot = GENERATE(0, 1);
  SECTION("because its process has died") {
    Roles(slot, Process(1 - slot, 11 - slot), ProcessId(), false);
    Roles(1 - slot, Process(1 - slot, 11 - slot), ProcessId(), false);
    Publish();
    hosts[1 - slot]->End(clock.Now() + absl::Seconds(5));
  }
  SECTION("because it was handed over") {
    Roles(slot, Process(1 - slot, 11 - slot), Process(slot, 10 + slot), true);
    Publish();
    EndAll();
  }
  REQUIRE(Newest().has_value());
  CHECK(Newest()->generation == 1);
  if (update == "policy: SYNC") CHECK(Newest()->iteration == 4);
  CHECK(Restored(*Newest()) == States());
}

TEST_CASE_METHOD(LastCheckpoint, "a slot that has moved, and was not trained, writes no last one") {
  Begin({"recovery.checkpoint.every_iterations=2"});
  for (const uint64_t iteration : {0, 1}) {
    TrainAll(iteration);
    net.Run();
  }
  WorkAll();
  view.set_generation(2);
  view.set_checkpoint(CheckpointId{1, 2}.ToString());
  Publish();
  Roles(1, Process(0, 10), Process(1, 11), true);
  FinishRun();
  EndAll();
  CHECK(Newest() == CheckpointId{1, 2});
  CHECK(Count() == 1);
}

TEST_CASE_METHOD(LastCheckpoint, "slot 0 that has moved does not forget what was registered") {
  Begin({"recovery.checkpoint.every_iterations=2"});
  for (const uint64_t iteration : {0, 1, 2}) {
    Keep(iteration);
    TrainAll(iteration);
    net.Run();
    WorkAll();
  }
  REQUIRE(Newest() == CheckpointId{1, 2});
  Roles(0, Process(1, 11), Process(0, 10), true);
  FinishRun();
  SECTION("if a worker tells it") {
    const StatesByName state{{"scheduler", "3"}};
    REQUIRE(hosts[1]->Primary(0)->store().registered_states().Keep(0, 3, state).ok());
    EndAll();
    REQUIRE(Newest() == CheckpointId{1, 3});
    const auto restored = MakeInitialState(*config, 0, &disk, CheckpointId{1, 3}.ToString());
    REQUIRE(restored.ok());
    CHECK((*restored)->registered_states().At(3) == state);
  }
  SECTION("and otherwise leaves the one before") {
    EndAll();
    CHECK(Newest() == CheckpointId{1, 2});
    const auto stats = hosts[1]->Stats(0);
    REQUIRE(stats.ok());
    CHECK(absl::StrContains(stats->recovery().last_checkpoint_failure(),
                            "no checkpoint of iteration 3: what the workers have registered"));
  }
}

TEST_CASE_METHOD(LastCheckpoint, "ASYNC and SSP: the last one has every chunk as the run ends") {
  const std::string policy = GENERATE("policy: ASYNC", "policy: SSP staleness: 3");
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_seconds=10", "update={" + policy + "}",
         "optimizer.kind=ADAM"});
  WorkAll();
  TrainAll(0);
  clock.Advance(absl::Seconds(10));
  WorkAll();
  WorkAll();
  const auto before = Newest();
  REQUIRE(before.has_value());
  TrainAll(1);
  FinishRun();
  hosts[0]->End(clock.Now() + absl::Seconds(5));
  clock.Advance(absl::Seconds(1));  // the test's clock begins in the middle of a minute
  hosts[1]->End(clock.Now() + absl::Seconds(5));
  REQUIRE(Newest().has_value());
  CHECK(*before < *Newest());
  CHECK(Restored(*Newest()) == States());
}

TEST_CASE_METHOD(LastCheckpoint, "the last one has what workers have registered at the end") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=10"});
  for (const uint64_t iteration : {0, 1}) {
    Keep(iteration);
    TrainAll(iteration);
  }
  SECTION("which they give as they finish") {
    Keep(2);
    FinishRun();
    EndAll();
    REQUIRE(Newest() == CheckpointId{1, 2});
    const auto restored = MakeInitialState(*config, 0, &disk, CheckpointId{1, 2}.ToString());
    REQUIRE(restored.ok());
    CHECK((*restored)->registered_states().At(2) == StatesByName{{"scheduler", "2"}});
  }
  SECTION("without which there is none") {
    FinishRun();
    EndAll({1, 0});
    CHECK(Count() == 0);
    CHECK(absl::StrContains(Stats().last_checkpoint_failure(),
                            "no checkpoint of iteration 2: not all of it is known"));
  }
}

TEST_CASE_METHOD(LastCheckpoint, "of a last one that takes too long nothing stays") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=10"});
  TrainAll(0);
  FinishRun();
  hosts[0]->End(clock.Now() + absl::Seconds(5));
  CHECK(Count() == 1);
  disk.SetFault([this](SimulatedDisk::Operation operation, const std::string&) {
    if (operation == SimulatedDisk::Operation::kWrite) clock.Advance(absl::Seconds(6));
    return absl::OkStatus();
  });
  hosts[1]->End(clock.Now() + absl::Seconds(5));
  CHECK(Count() == 0);
  CHECK(absl::StrContains(Stats(1).last_checkpoint_failure(), "limits.shutdown_seconds were over"));
}

}  // namespace evenshard
