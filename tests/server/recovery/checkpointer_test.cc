#include "server/recovery/checkpointer.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/server/recovery/checkpointer_fixture.h"
#include "tests/testing/await.h"

namespace evenshard {

TEST_CASE_METHOD(CheckpointerFixture, "a cut has every chunk as it was at its iteration") {
  const auto seed = std::random_device()();
  CAPTURE(seed);
  std::mt19937 random(seed);
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=3",
         "optimizer.kind=" + std::string(GENERATE("SGD", "ADAM"))});
  std::vector<SlotState> at_cut;
  for (uint64_t iteration = 0; iteration < 5; ++iteration) {
    if (iteration == 3) at_cut = States();
    for (int slot = 0; slot < 2; ++slot) {
      const std::shared_ptr<Shard> shard = Primary(slot);
      for (StoredChunk& chunk : shard->store().chunks()) {
        for (const int rank : {0, 1}) REQUIRE(Push(*shard, rank, iteration, chunk.info()).ok());
        if (iteration > 2 && random() % 3 == 0) hosts[slot]->Work();
      }
    }
  }
  CHECK(Replies() == 5 * 2 * (Chunks(0) + Chunks(1)));
  WorkAll();
  REQUIRE(Newest() == CheckpointId{1, 3});
  CHECK(Restored({1, 3}) == at_cut);
  CHECK(Stats().checkpoint_iteration() == 3);
  CHECK(Stats().checkpoint_failures() == 0);
}

TEST_CASE_METHOD(CheckpointerFixture, "a cut has what was registered before its exchange") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2"});
  for (const uint64_t iteration : {0, 1}) {
    Keep(iteration);
    TrainAll(iteration);
  }
  WorkAll();
  // It is written, and waits for what the workers have before they go on.
  CHECK(!Newest().has_value());
  SECTION("which comes while they go on") {
    for (const uint64_t iteration : {2, 3, 4}) {
      Keep(iteration);
      TrainAll(iteration);
    }
    WorkAll();
  }
  SECTION("which comes before they go on") {
    Keep(2);
    WorkAll();
  }
  const std::optional<CheckpointId> newest = Newest();
  REQUIRE(newest.has_value());
  CHECK(newest == CheckpointId{1, 2});
  const auto restored = MakeInitialState(*config, 0, &disk, newest->ToString());
  REQUIRE(restored.ok());
  CHECK((*restored)->registered_states().At(2) == StatesByName{{"scheduler", "2"}});
  CHECK(!(*restored)->registered_states().At(1).has_value());
  const auto other = MakeInitialState(*config, 1, &disk, newest->ToString());
  REQUIRE(other.ok());
  CHECK(!(*other)->registered_states().is_used());
}

TEST_CASE_METHOD(CheckpointerFixture, "updates wait where there is no room for copies") {
  const int64_t bytes = GENERATE(64, 130);
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2",
         "recovery.checkpoint.buffer_bytes=" + std::to_string(bytes)});
  for (const uint64_t iteration : {0, 1}) TrainAll(iteration);
  const std::vector<SlotState> at_cut = States();
  const size_t replies = Replies();
  TrainAll(2);
  CHECK(Replies() > replies);
  CHECK(Replies() < replies + 2 * (Chunks(0) + Chunks(1)));
  clock.Advance(absl::Seconds(3));
  WorkAll();
  CHECK(Replies() == replies + 2 * (Chunks(0) + Chunks(1)));
  CHECK(Restored({1, 2}) == at_cut);
  CHECK(Stats().checkpoint_wait_seconds() == Approx(3));
}

TEST_CASE_METHOD(CheckpointerFixture, "a cut that comes while another is written is left out") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2"});
  for (const uint64_t iteration : {0, 1, 2, 3, 4}) TrainAll(iteration);
  CHECK(Stats().checkpoint_failures() == 1);
  CHECK_THAT(Stats().last_checkpoint_failure(), Catch::Contains("iteration 4 was left out"));
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 2});
  // Every second one is begun now, until one is written in time.
  for (const uint64_t iteration : {5, 6}) TrainAll(iteration);
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 2});
  TrainAll(7);
  const std::vector<SlotState> at_cut = States();
  TrainAll(8);
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 8});
  CHECK(Restored({1, 8}) == at_cut);
  TrainAll(9);
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 10});
  CHECK(Stats().checkpoint_failures() == 1);
}

TEST_CASE_METHOD(CheckpointerFixture,
                 "a process that ends finishes the checkpoint that it writes") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2"});
  for (const uint64_t iteration : {0, 1}) TrainAll(iteration);
  hosts[0]->End(clock.Now() + absl::Seconds(1));
  hosts[1]->End(clock.Now());  // there is no time to finish
  CHECK(Newest() == std::nullopt);
  hosts[1]->End(clock.Now() + absl::Seconds(1));
  CHECK(Newest() == CheckpointId{1, 2});
}

TEST_CASE_METHOD(CheckpointerFixture, "slots that are slow out of step have cuts in common") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1"});
  // Each slot needs from one cut to behind the next. Slot 1 fails at the first.
  disk.SetFault([](SimulatedDisk::Operation operation, const std::string& path) {
    return operation == SimulatedDisk::Operation::kCreate && absl::StrContains(path, "shard-1")
               ? absl::ResourceExhaustedError("the disk is full")
               : absl::OkStatus();
  });
  TrainAll(0);
  hosts[1]->Work();
  CHECK(Stats(1).checkpoint_failures() == 1);
  disk.SetFault(nullptr);
  for (uint64_t iteration = 1; iteration < 12; ++iteration) {
    TrainAll(iteration);
    Work(iteration % 2 == 1 ? 0 : 1);
    for (const auto& [process, host] : hosts) host->Tick();
  }
  REQUIRE(Newest().has_value());
  CHECK(Newest()->iteration >= 8);
}

TEST_CASE_METHOD(CheckpointerFixture, "the folder stays small however slow a slot is") {
  const int slow = GENERATE(0, 1);
  const int per_chunk = GENERATE(1, 40);  // how many cuts pass while it writes one
  CAPTURE(slow, per_chunk);
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1",
         "recovery.checkpoint.keep=3"});
  const uint64_t iterations = 3000;
  std::set<uint64_t> complete;
  size_t most = 0;
  for (uint64_t iteration = 0; iteration < iterations; ++iteration) {
    TrainAll(iteration);
    Work(1 - slow);
    if (iteration % per_chunk == 0) {
      // It may look at the folder before it writes.
      hosts[slow]->Work();
      hosts[slow]->Work();
    }
    for (const auto& [process, host] : hosts) {
      if (iteration % 8 == 0) host->Tick();
    }
    const auto names = disk.ListFolder(folder);
    REQUIRE(names.ok());
    most = std::max<size_t>(most, absl::c_count_if(*names, [](const std::string& name) {
                              return absl::StartsWith(name, "generation");
                            }));
    complete.insert(Stats(slow).checkpoint_iteration());
  }
  // Those that are kept, one more until the oldest is removed, and for each slot those that it has
  // begun.
  INFO("most " << most << ", complete " << complete.size() << ", newest " << *complete.rbegin());
  CHECK(most <= 3 + 1 + 2 * 4);
  CHECK(complete.size() > 5);
  CHECK(*complete.rbegin() > iterations / 2);
}

TEST_CASE_METHOD(CheckpointerFixture,
                 "there are checkpoints again after a slot has failed for long") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1"});
  disk.SetFault([](SimulatedDisk::Operation operation, const std::string& path) {
    return operation == SimulatedDisk::Operation::kCreate && absl::StrContains(path, "shard-1")
               ? absl::ResourceExhaustedError("the disk is full")
               : absl::OkStatus();
  });
  for (uint64_t iteration = 0; iteration < 20; ++iteration) {
    if (iteration == 6) disk.SetFault(nullptr);
    TrainAll(iteration);
    for (const int slot : {1, 0}) Work(slot);  // slot 0 writes what slot 1 has given up
    for (const auto& [process, host] : hosts) host->Tick();
  }
  REQUIRE(Newest().has_value());
  CHECK(Newest()->iteration > 12);
}

TEST_CASE_METHOD(CheckpointerFixture, "there are checkpoints again after a slow slot has moved") {
  Begin({"recovery.checkpoint.every_iterations=1"});
  for (uint64_t iteration = 0; iteration < 20; ++iteration) {
    if (iteration == 6) {
      Kill(1);
      hosts.erase(1);
      for (const int slot : {0, 1}) Roles(slot, Process(0, 10), ProcessId(), false);
      Publish();
    }
    TrainAll(iteration);
    net.Run();
    Work(0);  // slot 0 writes, and so does slot 1 once it is there too
    hosts[0]->Tick();
  }
  REQUIRE(Newest().has_value());
  CHECK(Newest()->iteration > 12);
}

TEST_CASE_METHOD(CheckpointerFixture, "a slot notices that an earlier cut of its is complete") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1"});
  for (const uint64_t iteration : {0, 1}) {
    TrainAll(iteration);
    Work(0);
  }
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 1});
  CHECK(Stats(0).checkpoint_iteration() == 1);
}

TEST_CASE_METHOD(CheckpointerFixture, "what is left of a cut that fails is removed") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1"});
  TrainAll(0);
  Work(0);
  CHECK(CheckpointFolder(&disk, folder).List()->size() == 1);
  disk.SetFault([](SimulatedDisk::Operation operation, const std::string&) {
    return operation == SimulatedDisk::Operation::kCreate
               ? absl::ResourceExhaustedError("the disk is full")
               : absl::OkStatus();
  });
  Work(1);
  CHECK(CheckpointFolder(&disk, folder).List()->empty());
}

TEST_CASE_METHOD(CheckpointerFixture, "training goes on when the disk fails, and says so") {
  using Operation = SimulatedDisk::Operation;
  const Operation failing =
      GENERATE(Operation::kCreate, Operation::kWrite, Operation::kCommit, Operation::kMake);
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2",
         "recovery.checkpoint.buffer_bytes=64"});
  disk.SetFault([failing](Operation operation, const std::string&) {
    return operation == failing ? absl::ResourceExhaustedError("the disk is full")
                                : absl::OkStatus();
  });
  for (const uint64_t iteration : {0, 1, 2}) TrainAll(iteration);
  WorkAll();
  CHECK(Replies() == 3 * 2 * (Chunks(0) + Chunks(1)));
  CHECK(Newest() == std::nullopt);
  for (const int slot : {0, 1}) {
    CHECK(Stats(slot).checkpoint_failures() == 1);
    CHECK_THAT(Stats(slot).last_checkpoint_failure(), Catch::Contains("the disk is full"));
  }
  disk.SetFault(nullptr);
  TrainAll(3);
  const std::vector<SlotState> at_cut = States();
  TrainAll(4);
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 4});
  CHECK(Restored({1, 4}) == at_cut);
}

TEST_CASE_METHOD(CheckpointerFixture, "the folder of another run is not written to") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1"});
  owner.reset();
  auto other = FolderOwner::Take(&disk, folder, 12345, "another run");
  REQUIRE(other.ok());
  TrainAll(0);
  WorkAll();
  TrainAll(1);
  CHECK(Replies() == 2 * 2 * (Chunks(0) + Chunks(1)));
  CHECK(Stats().checkpoint_failures() == 1);
  CHECK(Newest() == std::nullopt);
}

TEST_CASE_METHOD(CheckpointerFixture, "a chunk is written only when the copy has it too") {
  Begin({"recovery.checkpoint.every_iterations=1"});
  TrainAll(0);
  WorkAll();
  CHECK(Newest() == std::nullopt);
  net.Run();
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 1});
  CHECK(Restored({1, 1}) == States());
}

TEST_CASE_METHOD(CheckpointerFixture, "the view says where to cut") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_seconds=10"});
  view.set_cut_iteration(2);
  Publish();
  for (const uint64_t iteration : {0, 1}) TrainAll(iteration);
  const std::vector<SlotState> at_cut = States();
  for (const uint64_t iteration : {2, 3}) TrainAll(iteration);
  WorkAll();
  CHECK(Newest() == CheckpointId{1, 2});
  CHECK(Restored({1, 2}) == at_cut);
}

TEST_CASE_METHOD(CheckpointerFixture, "ASYNC writes every chunk as it is, from time to time") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_seconds=10", "update.policy=ASYNC",
         "optimizer.kind=ADAM"});
  WorkAll();
  TrainAll(0);
  WorkAll();
  CHECK(Newest() == std::nullopt);
  clock.Advance(absl::Seconds(10));
  WorkAll();
  WorkAll();
  REQUIRE(Newest().has_value());
  CHECK(Restored(*Newest()) == States());
  const CheckpointId first = *Newest();
  TrainAll(1);
  WorkAll();
  CHECK(Newest() == first);
  clock.Advance(absl::Seconds(10));
  WorkAll();
  WorkAll();
  CHECK(first < *Newest());
  CHECK(Restored(*Newest()) == States());
}

TEST_CASE_METHOD(
    CheckpointerFixture,
    "a checkpoint has the mean square of a correction, and not what workers were sent") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_seconds=10", "optimizer.kind=SGD",
         "update={policy: ASYNC asynchrony { correction: GAP_AWARE }}"});
  WorkAll();
  const auto send_all = [this] {
    for (const int slot : {0, 1}) {
      for (const int rank : {0, 1}) Send(slot, rank);
    }
  };
  send_all();
  TrainAll(0);
  send_all();
  TrainAll(1);
  const std::vector<SlotState> before = States();
  clock.Advance(absl::Seconds(10));
  WorkAll();
  WorkAll();
  REQUIRE(Newest().has_value());
  const std::vector<SlotState> restored = Restored(*Newest());
  for (const int slot : {0, 1}) {
    CHECK(restored[slot].arrays == before[slot].arrays);
    CHECK(restored[slot].clocks == before[slot].clocks);
    CHECK(before[slot].sent_versions[0] != restored[slot].sent_versions[0]);
    CHECK(restored[slot].sent_versions[0] == std::vector<uint64_t>(2, SentParameters::kNoVersion));
    const std::vector<float>& square = before[slot].arrays[1];
    CHECK(std::all_of(square.begin(), square.end(), [](float s) { return s > 0; }));
  }
}

TEST_CASE_METHOD(CheckpointerFixture,
                 "ASYNC: a process by itself writes nothing before a worker has pushed") {
  config = std::make_unique<PlannedConfig>(
      SlotConfig({"recovery.replicas=0", "recovery.checkpoint.every_seconds=10",
                  "recovery.checkpoint.folder=\"/run\"", "update.policy=ASYNC"}));
  folder = "/run";
  SlotHost::Options options{.config = config.get(),
                            .self = Process(0, 10),
                            .clock = &clock,
                            .storage = &disk,
                            .has_threads = false};
  options.start.set_generation(1);
  options.start.set_run(77);
  auto taken = FolderOwner::Take(&disk, folder, options.start.run(), "the test");
  REQUIRE(taken.ok());
  owner = *std::move(taken);
  auto host = SlotHost::Start(options);
  REQUIRE(host.ok());
  hosts[0] = *std::move(host);
  const auto checkpoints_later = [&] {
    clock.Advance(absl::Seconds(10));
    hosts[0]->Tick();
    Work(0);
    const auto found = CheckpointFolder(&disk, folder).List();
    REQUIRE(found.ok());
    return found->size();
  };
  hosts[0]->Tick();
  CHECK(checkpoints_later() == 0);
  CHECK(checkpoints_later() == 0);
  view.add_worker()->set_incarnation(100);
  sinks.push_back(std::make_shared<RecordingSink>());
  REQUIRE(Push(*Primary(0), 0, 0, Primary(0)->store().chunks()[0].info()).ok());
  CHECK(checkpoints_later() == 1);
}

TEST_CASE_METHOD(CheckpointerFixture,
                 "ASYNC: slots have checkpoints in common, however many are due") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_seconds=0.05", "update.policy=ASYNC"});
  clock.Advance(absl::Milliseconds(10));
  for (int i = 0; i < 10; ++i) {
    for (const auto& [process, host] : hosts) {
      host->Tick();
      while (host->Work()) {
      }
      clock.Advance(absl::Milliseconds(50));
    }
  }
  CHECK(Newest().has_value());
}

TEST_CASE_METHOD(CheckpointerFixture, "no thread of a host that has ended asks about its roles") {
  has_threads = true;
  std::atomic<int> asked = 0;
  std::atomic<bool> has_ended = false;
  std::atomic<bool> asked_late = false;
  holds_roles = [&] {
    ++asked;
    if (has_ended) asked_late = true;
    return true;
  };
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_seconds=10", "update.policy=ASYNC"});
  for (const auto& [process, host] : hosts) host->Tick();
  absl::Notification writes, goes_on;
  disk.SetFault([&](SimulatedDisk::Operation operation, const std::string& path) {
    if (operation != SimulatedDisk::Operation::kWrite) return absl::OkStatus();
    if (!writes.HasBeenNotified()) writes.Notify();
    goes_on.WaitForNotification();
    return absl::OkStatus();
  });
  clock.Advance(absl::Seconds(10));
  hosts[0]->Tick();
  writes.WaitForNotification();
  const int asked_before = asked;
  std::thread ends([&] {
    hosts[0]->End(clock.Now() + absl::Seconds(1));
    has_ended = true;
  });
  // Time for End to return too early.
  absl::SleepFor(absl::Milliseconds(20));
  goes_on.Notify();
  ends.join();
  hosts[0].reset();
  CHECK(asked > asked_before);
  CHECK_FALSE(asked_late);
}

TEST_CASE_METHOD(CheckpointerFixture, "a run goes on from its checkpoint, in a new generation") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2", "optimizer.kind=ADAM"});
  for (const uint64_t iteration : {0, 1}) TrainAll(iteration);
  const std::vector<SlotState> at_cut = States();
  WorkAll();
  for (const uint64_t iteration : {2, 3}) TrainAll(iteration);
  const std::vector<SlotState> later = States();
  view.set_generation(2);
  view.set_checkpoint(CheckpointId{1, 2}.ToString());
  Publish();
  CHECK(States() == at_cut);
  for (const uint64_t iteration : {2, 3}) TrainAll(iteration);
  CHECK(States() == later);
  WorkAll();
  CHECK(Newest() == CheckpointId{2, 4});
}

TEST_CASE_METHOD(CheckpointerFixture, "a thread writes, and wakes the updates that wait for it") {
  has_threads = true;
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=1",
         "recovery.checkpoint.buffer_bytes=64"});
  for (uint64_t iteration = 0; iteration < 5; ++iteration) {
    TrainAll(iteration);
    const size_t expected = (iteration + 1) * 2 * (Chunks(0) + Chunks(1));
    AwaitTrue([&] {
      size_t replies = 0;  // by the chunks' clocks, because the thread sends some
      for (int slot = 0; slot < 2; ++slot) {
        for (const ChunkClock& clock : PrimaryState(slot).clocks) replies += 2 * clock.iteration;
      }
      return replies == expected;
    });
  }
  AwaitTrue([&] {
    for (const auto& [process, host] : hosts) host->Tick();
    return Newest().has_value();
  });
  hosts.clear();
}

TEST_CASE_METHOD(CheckpointerFixture, "what cannot be read of a checkpoint is read again") {
  const int replicas = GENERATE(0, 1);
  CAPTURE(replicas);
  Begin({"recovery.replicas=" + std::to_string(replicas), "recovery.checkpoint.every_iterations=2",
         "optimizer.kind=ADAM", "limits.startup_seconds=10"});
  for (const uint64_t iteration : {0, 1}) {
    TrainAll(iteration);
    net.Run();
  }
  const std::vector<SlotState> at_cut = States();
  WorkAll();
  disk.SetFault([](SimulatedDisk::Operation operation, const std::string& path) {
    const bool fails = operation == SimulatedDisk::Operation::kRead &&
                       absl::StrContains(path, "shard-0") && absl::StrContains(path, "generation");
    return fails ? absl::UnknownError("Input/output error") : absl::OkStatus();
  });
  view.set_generation(2);
  view.set_checkpoint(CheckpointId{1, 2}.ToString());
  Publish();
  CHECK(PrimaryState(1) == at_cut[1]);
  CHECK(hosts[0]->Primary(0) == nullptr);
  CHECK(hosts[0]->State().failure().empty());
  CHECK(hosts[0]->State().view() == 0);  // no worker can reach the slot there
  CHECK(hosts[1]->State().view() == view.number());
  SECTION("until it can be") {
    clock.Advance(absl::Seconds(9));
    hosts[0]->Tick();
    disk.SetFault(nullptr);
    clock.Advance(absl::Seconds(1));
    for (const int process : {0, 1}) hosts[process]->Tick();
    CHECK(States() == at_cut);
    if (replicas > 0) CHECK(CopyState(1, 0) == at_cut[0]);
  }
  SECTION("at once if the next view comes") {
    disk.SetFault(nullptr);
    Publish();
    CHECK(States() == at_cut);
  }
  SECTION("and not if another process has the slot by then") {
    Roles(0, Process(1, 11), ProcessId(), false);
    view.set_generation(3);
    disk.SetFault(nullptr);
    Publish();
    clock.Advance(absl::Seconds(1));
    hosts[0]->Tick();
    CHECK(hosts[0]->Primary(0) == nullptr);
  }
  SECTION("for as long as a start may take") {
    clock.Advance(absl::Seconds(10));
    hosts[0]->Tick();
    CHECK(hosts[0]->State().failure().empty());
    CHECK(hosts[0]->State().unreadable().checkpoint() == view.checkpoint());
    CHECK_THAT(hosts[0]->State().unreadable().why(), Catch::Contains("Input/output error"));
    disk.SetFault(nullptr);
    SECTION("and then it may still be read") {
      clock.Advance(absl::Seconds(1));
      for (const int process : {0, 1}) hosts[process]->Tick();
      CHECK(States() == at_cut);
    }
    SECTION("and then the run goes back to another one") {
      view.set_generation(3);
      view.clear_checkpoint();
      Publish();
    }
    CHECK(!hosts[0]->State().has_unreadable());
    CHECK(hosts[0]->Primary(0) != nullptr);
  }
}

TEST_CASE_METHOD(CheckpointerFixture, "that a part of a checkpoint is damaged is said at once") {
  Begin({"recovery.replicas=0", "recovery.checkpoint.every_iterations=2"});
  for (const uint64_t iteration : {0, 1}) TrainAll(iteration);
  WorkAll();
  disk.SetFault([](SimulatedDisk::Operation operation, const std::string& path) {
    const bool fails = operation == SimulatedDisk::Operation::kRead &&
                       absl::StrContains(path, "shard-0") && absl::StrContains(path, "generation");
    return fails ? absl::DataLossError("shard-0 is damaged") : absl::OkStatus();
  });
  view.set_generation(2);
  view.set_checkpoint(CheckpointId{1, 2}.ToString());
  Publish();
  CHECK(hosts[0]->State().unreadable().checkpoint() == view.checkpoint());
  CHECK(hosts[0]->State().failure().empty());
}

}  // namespace evenshard
