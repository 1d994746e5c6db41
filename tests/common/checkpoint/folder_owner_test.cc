#include "common/checkpoint/folder_owner.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr CheckpointId kId = {.generation = 1, .iteration = 10};

TEST_CASE("two runs cannot have one folder, and the error names who has it") {
  RealStorage storage;
  const ScratchFolder scratch;
  const std::string folder = scratch.Path("a/b");
  auto first = FolderOwner::Take(&storage, folder, 0x1f, "launch, process 7 on host a");
  REQUIRE(first.ok());
  CHECK(*OwnerOf(&storage, folder) == 0x1f);
  const auto second = FolderOwner::Take(&storage, folder, 0x2f, "launch, process 8 on host a");
  CHECK(absl::IsFailedPrecondition(second.status()));
  CHECK(second.status().message() ==
        "another run uses the folder: " + folder +
            "/LOCK is locked by run 000000000000001f of launch, process 7 on host a, allowed: a "
            "folder of its own for each run (recovery.checkpoint.folder)");
  CHECK(*OwnerOf(&storage, folder) == 0x1f);
  first->reset();
  CHECK(FolderOwner::Take(&storage, folder, 0x2f, "launch, process 8 on host a").ok());
  CHECK(*OwnerOf(&storage, folder) == 0x2f);
}

TEST_CASE("a run whose folder was taken over where locks do not reach writes nothing more") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  REQUIRE(FolderOwner::Take(&disk, "/c", kRun, "the first").ok());
  REQUIRE(WriteSlot(&disk, "/c", config, 0, MakeCut(kId)).ok());
  disk.Restart();
  const auto taken = FolderOwner::Take(&disk, "/c", 5, "the second");
  REQUIRE(taken.ok());

  const auto before = disk.Files();
  const std::string error =
      "the folder /c has been taken over by run 0000000000000005 of the second, allowed: a folder "
      "of its own for each run (recovery.checkpoint.folder)";
  const absl::Status write = WriteSlot(&disk, "/c", config, 0, MakeCut(kId));
  CHECK(absl::IsFailedPrecondition(write));
  CHECK(write.message() == error);
  const CheckpointFolder folder(&disk, "/c");
  CHECK(folder.TryComplete(kId, kRun, 1, kNow).status().message() == error);
  // Nor does the second run take the first one's files for its own, or write over them.
  CHECK(absl::IsFailedPrecondition(folder.TryComplete(kId, 5, 1, kNow).status()));
  const absl::Status over = WriteSlot(&disk, "/c", config, 0, MakeCut(kId, 5));
  CHECK(absl::IsFailedPrecondition(over));
  CHECK(absl::StrContains(over.message(), "has the files of another run or config"));
  CHECK(disk.Files() == before);
}

TEST_CASE("a folder is some run's before anything is written to it") {
  SimulatedDisk disk;
  CHECK(absl::IsNotFound(OwnerOf(&disk, "/c").status()));
  const absl::Status status = CheckOwner(&disk, "/c", kRun);
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "no run owns the folder /c: the file RUN is missing");
  REQUIRE(FolderOwner::Take(&disk, "/c", kRun, "a").ok());
  CHECK(CheckOwner(&disk, "/c", kRun).ok());
  disk.Truncate("/c/RUN", 3);
  CHECK(absl::IsDataLoss(CheckOwner(&disk, "/c", kRun)));
}

TEST_CASE("whoever takes the coordinator over takes the folder again") {
  SimulatedDisk disk;
  auto first = FolderOwner::Take(&disk, "/c", kRun, "a");
  REQUIRE(first.ok());
  first->reset();
  CHECK(FolderOwner::Take(&disk, "/c", kRun, "b").ok());
  CHECK(CheckOwner(&disk, "/c", kRun).ok());
}

}  // namespace
}  // namespace evenshard
