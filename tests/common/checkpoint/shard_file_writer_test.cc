#include "common/checkpoint/shard_file_writer.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr CheckpointId kId = {.generation = 1, .iteration = 10};

std::unique_ptr<FolderOwner> Own(Storage* storage, const std::string& folder) {
  auto owner = FolderOwner::Take(storage, folder, kRun, "the test");
  REQUIRE(owner.ok());
  return *std::move(owner);
}

TEST_CASE("the order of the chunks and who writes make no difference to a byte") {
  const PlannedConfig config = CheckpointConfig(2);
  std::map<std::string, std::string> files[2];
  for (const bool backwards : {false, true}) {
    SimulatedDisk disk;
    Own(&disk, "/c");
    for (const int slot : {0, 1}) {
      REQUIRE(WriteSlot(&disk, "/c", config, slot, MakeCut(kId), backwards).ok());
    }
    files[backwards] = disk.Files();
    // Another process takes over and writes the cut once more.
    REQUIRE(WriteSlot(&disk, "/c", config, 1, MakeCut(kId), !backwards).ok());
    CHECK(disk.Files() == files[backwards]);
  }
  CHECK(files[0] == files[1]);
  CHECK(files[0].size() == 6);  // two for each slot, LOCK and RUN
}

TEST_CASE("a checkpoint's worker sets are those of the newest view that a slot had heard of") {
  SimulatedDisk disk;
  const auto owner = Own(&disk, "/c");
  const PlannedConfig config = CheckpointConfig(2);
  std::vector<WorkerSet> later = MakeWorkerSets();
  later.emplace_back().set_from_iteration(3);
  later.back().add_rank(1);
  for (const int slot : {0, 1}) {
    auto writer =
        ShardFileWriter::Create(&disk, "/c", config, PartOfSlot(config, slot), MakeCut(kId));
    REQUIRE(writer.ok());
    for (const uint32_t id : config.plan().chunks_of_shard(slot)) {
      const Chunk& chunk = config.plan().chunks()[id];
      REQUIRE(AddChunk(writer->get(), config, chunk, SyncClock(config, kId)).ok());
    }
    REQUIRE((*writer)->Commit(slot == 0 ? 4 : 5, slot == 0 ? MakeWorkerSets() : later).ok());
  }
  const CheckpointFolder folder(&disk, "/c");
  REQUIRE(*folder.TryComplete(kId, kRun, 2, kNow));
  const auto manifest = folder.ReadManifest(kId);
  REQUIRE(manifest.ok());
  REQUIRE(manifest->facts().worker_set.size() == 2);
  CHECK(manifest->facts().worker_set[1].from_iteration() == 3);
}

TEST_CASE("a chunk that was not added is an error, and no record is written") {
  SimulatedDisk disk;
  const auto owner = Own(&disk, "/c");
  const PlannedConfig config = CheckpointConfig(1);
  auto writer = ShardFileWriter::Create(&disk, "/c", config, PartOfSlot(config, 0), MakeCut(kId));
  REQUIRE(writer.ok());
  for (const Chunk& chunk : config.plan().chunks()) {
    if (chunk.id == 3) continue;
    REQUIRE(AddChunk(writer->get(), config, chunk, SyncClock(config, kId)).ok());
  }
  const absl::Status status = (*writer)->Commit(/*view=*/1, MakeWorkerSets());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::EndsWith(status.message(), " lacks chunk 3"));
  CHECK(disk.Files().size() == 2);
}

TEST_CASE("a complete checkpoint is not written again") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  WriteCheckpoint(&disk, "/c", config, kId);
  const auto before = disk.Files();
  CHECK(absl::IsAlreadyExists(WriteSlot(&disk, "/c", config, 0, MakeCut(kId))));
  CHECK(disk.Files() == before);
}

TEST_CASE("running statistics have no optimizer state, other tensors what their optimizer needs") {
  const auto arrays = [](const std::string& kind) {
    const PlannedConfig config = CheckpointConfig(1, {"optimizer.kind=" + kind});
    std::vector<int> counts;
    for (const Tensor& tensor : config.model().tensors()) {
      counts.push_back(OptimizerArrays(config, tensor));
    }
    return counts;
  };
  // conv: 2; norm: weight, bias, running_mean, running_var; fc: 2.
  CHECK(arrays("SGD") == std::vector<int>(8, 0));
  CHECK(arrays("MOMENTUM") == std::vector<int>{1, 1, 1, 1, 0, 0, 1, 1});
  CHECK(arrays("NESTEROV") == std::vector<int>{1, 1, 1, 1, 0, 0, 1, 1});
  CHECK(arrays("ADAGRAD") == std::vector<int>{1, 1, 1, 1, 0, 0, 1, 1});
  CHECK(arrays("ADAM") == std::vector<int>{2, 2, 2, 2, 0, 0, 2, 2});
  CHECK(arrays("ADAMW") == std::vector<int>{2, 2, 2, 2, 0, 0, 2, 2});
  CHECK(arrays("RMSPROP") == std::vector<int>{1, 1, 1, 1, 0, 0, 1, 1});
  CHECK(arrays("RMSPROP_MOMENTUM") == std::vector<int>{2, 2, 2, 2, 0, 0, 2, 2});
  CHECK(arrays("ADAM_AMSGRAD") == std::vector<int>{3, 3, 3, 3, 0, 0, 3, 3});
  CHECK(arrays("ADAMW_AMSGRAD") == std::vector<int>{3, 3, 3, 3, 0, 0, 3, 3});
  CHECK(arrays("LION") == std::vector<int>{1, 1, 1, 1, 0, 0, 1, 1});
}

TEST_CASE("a shard's file has a tensor for each slice and array, with their values") {
  RealStorage storage;
  const ScratchFolder folder;
  const PlannedConfig config = CheckpointConfig(3);
  WriteCheckpoint(&storage, folder.Path("c"), config, kId);
  const CheckpointFolder checkpoints(&storage, folder.Path("c"));
  int slices = 0;
  for (int slot = 0; slot < 3; ++slot) {
    const std::string path = checkpoints.FilePath(kId, ShardFileName(slot, 3));
    const auto file = storage.OpenFile(path);
    REQUIRE(file.ok());
    const auto tensors = ReadSafetensorsHeader(**file, path);
    REQUIRE(tensors.ok());
    std::map<std::string, StoredTensor> by_name;
    for (const StoredTensor& tensor : *tensors) by_name[tensor.name] = tensor;
    size_t expected = 0;
    for (const Slice& slice : config.plan().slices()) {
      if (slice.shard != slot) continue;
      ++slices;
      const Tensor& tensor = config.model().tensors()[slice.tensor];
      for (int array = 0; array <= OptimizerArrays(config, tensor); ++array) {
        const std::string name =
            absl::StrCat(array == 0 ? "" : absl::StrCat("optimizer.", array - 1, "/"), tensor.name,
                         "[", slice.begin, ":", slice.begin + slice.size, "]");
        INFO(name);
        REQUIRE(by_name.contains(name));
        const StoredTensor& stored = by_name[name];
        CHECK(stored.dtype == "F32");
        CHECK(stored.shape == std::vector<int64_t>{slice.size});
        std::vector<float> values(slice.size);
        REQUIRE((*file)
                    ->ReadAt(stored.offset, absl::MakeSpan(reinterpret_cast<char*>(values.data()),
                                                           values.size() * sizeof(float)))
                    .ok());
        CHECK(values.back() == ValueOf(array, slice.tensor, slice.begin + slice.size - 1));
        ++expected;
      }
    }
    CHECK(by_name.size() == expected);
    // A reader that knows nothing but the published format.
    Program python(
        {"/usr/bin/python3", "-I", "tests/common/checkpoint/check_safetensors.py", path});
    const int code = python.Wait();
    INFO(python.output());
    CHECK(code == 0);
    CHECK(absl::StrContains(python.output(), absl::StrCat(expected, " tensors")));
  }
  CHECK(slices > 8);
}

}  // namespace
}  // namespace evenshard
