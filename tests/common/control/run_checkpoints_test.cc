#include "common/control/run_checkpoints.h"

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr char kFolder[] = "/run";
constexpr CheckpointId kFirst = {.generation = 1, .iteration = 10};
constexpr CheckpointId kSecond = {.generation = 1, .iteration = 20};

using Start = RunCheckpoints::Start;

struct Fixture {
  absl::StatusOr<std::unique_ptr<RunCheckpoints>> Open(Start start, uint64_t run = kRun) {
    return RunCheckpoints::Open(config, run, start, "the test", &disk, clock);
  }
  // From now on, reading a checkpoint of this name fails `times` times.
  void FailReads(const std::string& name, int times) {
    disk.SetFault([name, times](SimulatedDisk::Operation operation,
                                const std::string& path) mutable -> absl::Status {
      const bool is_it = operation == SimulatedDisk::Operation::kRead &&
                         absl::StrContains(path, name) && absl::EndsWith(path, ".safetensors");
      if (!is_it || times == 0) return absl::OkStatus();
      --times;
      return absl::UnknownError("Input/output error");
    });
  }

  SimulatedDisk disk;
  RealClock clock;
  const PlannedConfig config = CheckpointConfig(
      2, {absl::StrCat("recovery={checkpoint {folder: '", kFolder, "' every_iterations: 10}}"),
          "limits.startup_seconds=1"});
};

}  // namespace

TEST_CASE_METHOD(Fixture, "a run looks for its start under the folder's lock") {
  const auto first = Open(Start::kNew);
  REQUIRE(first.ok());
  CHECK_FALSE((*first)->resume().has_value());
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  // The other run has a checkpoint by now, and may have others before the lock is free.
  const Start start = GENERATE(Start::kNew, Start::kResumed);
  const absl::Status second = Open(start, kRun + 1).status();
  CHECK(absl::IsFailedPrecondition(second));
  CHECK(absl::StrContains(second.message(), "another run uses the folder"));
  CHECK(CheckOwner(&disk, kFolder, kRun).ok());
}

TEST_CASE_METHOD(Fixture, "a run that is refused does not take the folder over") {
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  CHECK(absl::IsInvalidArgument(Open(Start::kNew, kRun + 1).status()));
  CHECK(CheckOwner(&disk, kFolder, kRun).ok());
  const auto resumed = Open(Start::kResumed, kRun + 1);
  REQUIRE(resumed.ok());
  CHECK((*resumed)->resume()->name == kFirst.ToString());
  CHECK((*(*resumed)->Newest(false))->name == kFirst.ToString());
}

TEST_CASE_METHOD(Fixture, "a successor gets the folder's lock as soon as it is free") {
  auto former = Open(Start::kNew);
  REQUIRE(former.ok());
  const auto successor = Open(Start::kGoesOn);
  REQUIRE(successor.ok());
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  CHECK((*successor)->Hold().ok());
  CHECK((*(*successor)->Newest(false))->name == kFirst.ToString());
  former->reset();
  CHECK((*successor)->Hold().ok());
  CHECK(absl::IsFailedPrecondition(Open(Start::kResumed, kRun + 1).status()));
  CHECK((*successor)->Hold().ok());
}

TEST_CASE_METHOD(Fixture, "another run's checkpoints are not taken for its own") {
  auto former = Open(Start::kNew);
  REQUIRE(former.ok());
  const auto successor = Open(Start::kGoesOn);
  REQUIRE(successor.ok());
  former->reset();
  {
    const auto other = Open(Start::kNew, kRun + 1);
    REQUIRE(other.ok());
    CHECK(absl::IsFailedPrecondition((*successor)->Hold()));
  }
  for (const absl::Status& status : {(*successor)->Hold(), (*successor)->Newest(false).status(),
                                     Open(Start::kGoesOn).status()}) {
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(absl::StrContains(status.message(), "has been taken over by run"));
  }
  CHECK(CheckOwner(&disk, kFolder, kRun + 1).ok());
}

TEST_CASE_METHOD(Fixture, "an error of the disk does not end a successor") {
  REQUIRE(Open(Start::kNew).ok());
  disk.SetFault([](SimulatedDisk::Operation, const std::string&) {
    return absl::UnknownError("Input/output error");
  });
  const auto successor = Open(Start::kGoesOn);
  REQUIRE(successor.ok());
  disk.SetFault(nullptr);
  CHECK((*successor)->Hold().ok());
  CHECK(absl::IsFailedPrecondition(Open(Start::kResumed, kRun + 1).status()));
}

TEST_CASE_METHOD(Fixture, "a folder that is away does not end a successor") {
  auto former = Open(Start::kNew);
  REQUIRE(former.ok());
  former->reset();
  const std::string run = disk.Files().at(absl::StrCat(kFolder, "/RUN"));
  for (const auto& [path, contents] : disk.Files()) REQUIRE(disk.RemoveFile(path).ok());
  REQUIRE(disk.RemoveFolder(kFolder).ok());
  const auto successor = Open(Start::kGoesOn);
  REQUIRE(successor.ok());
  CHECK((*successor)->Hold().ok());
  CHECK(absl::IsUnavailable((*successor)->Newest(false).status()));
  // What is there would be hidden, and what was written to it lost, once the folder is back.
  CHECK(absl::IsNotFound(disk.ListFolder(kFolder).status()));

  REQUIRE(disk.MakeFolder(kFolder).ok());
  REQUIRE(WriteWholeFile(&disk, absl::StrCat(kFolder, "/RUN"), run).ok());
  CHECK((*successor)->Hold().ok());
  CHECK((*successor)->Newest(false).ok());
  CHECK(absl::IsFailedPrecondition(Open(Start::kResumed, kRun + 1).status()));
}

TEST_CASE_METHOD(Fixture, "a checkpoint that does not fit is refused before anything starts") {
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  for (const auto& [override, text] :
       {std::pair("optimizer.kind=MOMENTUM", "optimizer.kind ADAM, but this config has MOMENTUM"),
        std::pair("workers=1", "workers: 2, but this config has 1")}) {
    const std::string recovery =
        absl::StrCat("recovery={checkpoint {folder: '", kFolder, "' every_iterations: 10}}");
    const auto resumed = RunCheckpoints::Open(CheckpointConfig(2, {recovery, override}), kRun + 1,
                                              Start::kResumed, "the test", &disk, clock);
    CHECK(absl::IsInvalidArgument(resumed.status()));
    CHECK(absl::StrContains(resumed.status().message(), text));
  }
  CHECK(CheckOwner(&disk, kFolder, kRun).ok());
}

TEST_CASE_METHOD(Fixture, "a run resumes although the newest checkpoint cannot be read") {
  for (const CheckpointId& id : {kFirst, kSecond}) WriteCheckpoint(&disk, kFolder, config, id);
  SECTION("at first") {
    FailReads(kSecond.ToString(), 5);
    const auto resumed = Open(Start::kResumed);
    REQUIRE(resumed.ok());
    CHECK((*resumed)->resume()->name == kSecond.ToString());
  }
  SECTION("at all") {
    FailReads(kSecond.ToString(), 1000);
    const auto resumed = Open(Start::kResumed);
    REQUIRE(resumed.ok());
    CHECK((*resumed)->resume()->name == kFirst.ToString());
  }
  SECTION("and reading takes long") {
    FakeClock slow;
    int reads = 0;
    disk.SetFault([&](SimulatedDisk::Operation operation, const std::string& path) -> absl::Status {
      const bool is_it = operation == SimulatedDisk::Operation::kRead &&
                         absl::StrContains(path, kSecond.ToString()) &&
                         absl::EndsWith(path, ".safetensors");
      if (!is_it) return absl::OkStatus();
      ++reads;
      slow.Advance(absl::Seconds(1));
      return absl::UnknownError("Input/output error");
    });
    const auto resumed =
        RunCheckpoints::Open(config, kRun, Start::kResumed, "the test", &disk, slow);
    REQUIRE(resumed.ok());
    CHECK((*resumed)->resume()->name == kFirst.ToString());
    CHECK(reads == 2);  // limits.startup_seconds are over after the first
  }
  SECTION("but not if none can be") {
    FailReads("generation", 1000);
    CHECK(absl::StrContains(Open(Start::kResumed).status().message(), "cannot be read now"));
  }
}

}  // namespace evenshard
