#include "common/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/strings/match.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr CheckpointId kId = {.generation = 1, .iteration = 120};

std::string ErrorOf(Storage* storage, const std::string& folder, const PlannedConfig& config) {
  const auto reader = CheckpointReader::Open(storage, folder, config, kId);
  REQUIRE_FALSE(reader.ok());
  CHECK(absl::IsFailedPrecondition(reader.status()));
  return std::string(reader.status().message());
}

// Returns the elements of all tensors of whichever array that differ from what was written, when
// ranges of `step` elements are read.
int64_t CountWrong(CheckpointReader* reader, const PlannedConfig& config, int64_t step) {
  int64_t wrong = 0;
  for (size_t i = 0; i < config.model().tensors().size(); ++i) {
    const int t = static_cast<int>(i);
    const Tensor& tensor = config.model().tensors()[i];
    for (int64_t begin = 0; begin < tensor.size; begin += step) {
      std::vector<float> values(std::min(step, tensor.size - begin));
      for (int array = 0; array <= OptimizerArrays(config, tensor); ++array) {
        const absl::Status read =
            array == 0 ? reader->ReadParameters(t, begin, absl::MakeSpan(values))
                       : reader->ReadOptimizerArray(array - 1, t, begin, absl::MakeSpan(values));
        INFO(read.message());
        REQUIRE(read.ok());
        for (size_t j = 0; j < values.size(); ++j) {
          if (values[j] != ValueOf(array, t, begin + static_cast<int64_t>(j))) ++wrong;
        }
      }
    }
  }
  return wrong;
}

TEST_CASE("a checkpoint is read back whichever way its model is cut") {
  RealStorage storage;
  const ScratchFolder folder;
  WriteCheckpoint(&storage, folder.Path("c"), CheckpointConfig(3), kId);
  const auto [shards, overrides] = GENERATE(table<int, std::vector<std::string>>({
      {3, {}},
      {1, {}},
      {5, {}},
      {2, {"partition.scheme=MEMORY_BASED"}},
      {2, {"partition.scheme=LAYER_BASED"}},
      {3, {"limits.chunk_bytes=64"}},
      {3, {"limits.chunk_bytes=4096"}},
      {3, {"optimizer.learning_rate=0.5"}},
      {3, {"optimizer.rule={tensors: '*/bias' learning_rate: 0.5}"}},
  }));
  const PlannedConfig config = CheckpointConfig(shards, overrides);
  const auto reader = CheckpointReader::Open(&storage, folder.Path("c"), config, kId);
  INFO(reader.status().message());
  REQUIRE(reader.ok());
  CHECK(CountWrong(reader->get(), config, GENERATE(1, 7, 64, 100000)) == 0);
  for (const Chunk& chunk : config.plan().chunks()) {
    REQUIRE((*reader)->ClockOf(chunk.tensor, chunk.begin, chunk.size) == SyncClock(config, kId));
  }
}

TEST_CASE("a checkpoint says what it is of") {
  RealStorage storage;
  const ScratchFolder folder;
  const PlannedConfig config = CheckpointConfig(2);
  WriteCheckpoint(&storage, folder.Path("c"), config, kId);
  const auto reader = CheckpointReader::Open(&storage, folder.Path("c"), config, kId);
  REQUIRE(reader.ok());
  const CheckpointFacts& facts = (*reader)->facts();
  CHECK(facts.id == kId);
  CHECK(facts.run == kRun);
  CHECK(facts.config_fingerprint == config.fingerprint());
  REQUIRE(facts.worker_set.size() == 1);
  CHECK(facts.worker_set[0].SerializeAsString() == MakeWorkerSets()[0].SerializeAsString());
}

TEST_CASE("the clock of elements from several chunks has the largest of each number") {
  RealStorage storage;
  const ScratchFolder folder;
  const PlannedConfig config =
      CheckpointConfig(1, {"update.policy=ASYNC", "limits.chunk_bytes=64"});
  REQUIRE(FolderOwner::Take(&storage, folder.Path("c"), kRun, "the test").ok());
  auto writer = ShardFileWriter::Create(&storage, folder.Path("c"), config, PartOfSlot(config, 0),
                                        MakeCut(kId));
  REQUIRE(writer.ok());
  for (const Chunk& chunk : config.plan().chunks()) {
    const uint64_t i = chunk.id;
    REQUIRE(AddChunk(writer->get(), config, chunk,
                     {.version = i,
                      .iteration = 0,
                      .next_iteration = {100 - i, i},
                      .norms = {i == 0 ? 1e300 / 3 : 0.1, static_cast<double>(i)}})
                .ok());
  }
  REQUIRE((*writer)->Commit(/*view=*/1, MakeWorkerSets()).ok());
  REQUIRE(*CheckpointFolder(&storage, folder.Path("c")).TryComplete(kId, kRun, 1, kNow));
  const auto reader = CheckpointReader::Open(&storage, folder.Path("c"), config, kId);
  REQUIRE(reader.ok());
  const Chunk& second = config.plan().chunks()[1];
  const ChunkClock of_two = (*reader)->ClockOf(second.tensor, second.begin - 1, 2);
  CHECK(of_two ==
        ChunkClock{
            .version = 1, .iteration = 0, .next_iteration = {100, 1}, .norms = {1e300 / 3, 1}});
  const ChunkClock of_one = (*reader)->ClockOf(second.tensor, second.begin, 1);
  CHECK(of_one ==
        ChunkClock{.version = 1, .iteration = 0, .next_iteration = {99, 1}, .norms = {0.1, 1}});
}

TEST_CASE("a checkpoint of rounds of another length is refused") {
  RealStorage storage;
  const ScratchFolder folder;
  const std::string path = folder.Path("c");
  const auto config_with = [](const std::string& local) {
    return CheckpointConfig(2, {"optimizer={kind: NESTEROV learning_rate: 0.7 momentum: 0.9}",
                                absl::StrCat("local={", local, "}")});
  };
  const PlannedConfig config = config_with("steps: 4 optimizer {kind: SGD learning_rate: 0.1}");
  WriteCheckpoint(&storage, path, config, kId);
  CHECK(CheckpointReader::Open(&storage, path, config, kId).ok());
  CHECK(absl::EndsWith(
      ErrorOf(&storage, path, config_with("steps: 8 optimizer {kind: SGD learning_rate: 0.1}")),
      "with local.steps 4, but this config has 8"));
}

TEST_CASE("a checkpoint whose arrays or iterations mean something else is refused") {
  RealStorage storage;
  const ScratchFolder folder;
  const std::string path = folder.Path("c");
  const auto config_with = [](const std::string& asynchrony, const std::string& more = "") {
    std::vector<std::string> overrides = {
        "optimizer={kind: MOMENTUM learning_rate: 0.1 momentum: 0.9}",
        absl::StrCat("update={policy: ASYNC asynchrony {", asynchrony, "}}")};
    if (!more.empty()) overrides.push_back(more);
    return CheckpointConfig(2, overrides);
  };
  WriteCheckpoint(&storage, path, config_with("velocity: PER_WORKER"), kId);
  const auto error = [&](const std::string& asynchrony, const std::string& more = "") {
    return ErrorOf(&storage, path, config_with(asynchrony, more));
  };
  // As many arrays, of which the second is another one.
  CHECK(absl::EndsWith(error("velocity: SHARED correction: GAP_AWARE"),
                       "with update.asynchrony.velocity PER_WORKER, but this config has SHARED"));
  CHECK(absl::EndsWith(error("correction: GAP_AWARE"),
                       "with update.asynchrony.correction NONE or DELAY_COMPENSATION, but this "
                       "config has GAP_AWARE"));
  CHECK(absl::EndsWith(error("", "training.batch_size=64"),
                       "with training.batch_size 32, but this config has 64"));
  for (const std::string same : {"velocity: PER_WORKER", "correction: DELAY_COMPENSATION", ""}) {
    CHECK(CheckpointReader::Open(&storage, path, config_with(same), kId).ok());
  }
  const std::string synchronous = folder.Path("s");
  WriteCheckpoint(&storage, synchronous, CheckpointConfig(2), kId);
  CHECK(absl::EndsWith(
      ErrorOf(&storage, synchronous, CheckpointConfig(2, {"exchange={update_encoding: INT8}"})),
      "with exchange.update_encoding none, but this config has some"));
}

TEST_CASE("a checkpoint of another model, optimizer, policy or number of workers is refused") {
  RealStorage storage;
  const ScratchFolder folder;
  const std::string path = folder.Path("c");
  WriteCheckpoint(&storage, path, CheckpointConfig(2), kId);
  const auto error = [&](const std::string& override) {
    return ErrorOf(&storage, path, CheckpointConfig(2, {override}));
  };
  CHECK(absl::EndsWith(error("optimizer.kind=MOMENTUM"),
                       "manifest.json: the checkpoint was written with optimizer.kind ADAM, but "
                       "this config has MOMENTUM"));
  CHECK(absl::EndsWith(error("optimizer.kind=ADAMW"), "ADAM, but this config has ADAMW"));
  CHECK(absl::EndsWith(error("optimizer.kind=ADAM_AMSGRAD"),
                       "ADAM, but this config has ADAM_AMSGRAD"));
  CHECK(absl::EndsWith(error("update.policy=ASYNC"),
                       "with update.policy SYNC, but this config has ASYNC"));
  CHECK(absl::EndsWith(error("workers=3"), "with workers: 2, but this config has 3"));
  CHECK(absl::EndsWith(
      error("model.layer[2].linear.out_features=12"),
      "the checkpoint is of another model, custom, than custom: fc/weight has the shape [10, 128] "
      "there and [12, 128] here; fc/bias has the shape [10] there and [12] here"));
  CHECK(absl::EndsWith(error("model.layer[2].name=other"),
                       ": other/weight is missing there; other/bias is missing there; fc/bias is "
                       "missing here; fc/weight is missing here"));
  CHECK(absl::EndsWith(error("model={builtin: \"resnet18\"}"), "tensors differ"));
}

TEST_CASE("a flipped bit or a missing end is an error of the elements that need it") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1, {"limits.chunk_bytes=64"});
  WriteCheckpoint(&disk, "/c", config, kId);
  const std::string path = CheckpointFolder(&disk, "/c").FilePath(kId, ShardFileName(0, 1));
  const auto file = disk.OpenFile(path);
  const auto tensors = ReadSafetensorsHeader(**file, path);
  REQUIRE(tensors.ok());
  CHECK((*tensors)[0].name == "conv/weight[0:216]");
  // Element 20 is in the second chunk of 16.
  disk.FlipBit(path, (*tensors)[0].offset + 20 * 4);
  const auto reader = CheckpointReader::Open(&disk, "/c", config, kId);
  REQUIRE(reader.ok());
  std::vector<float> values(16);
  CHECK((*reader)->ReadParameters(0, 0, absl::MakeSpan(values)).ok());
  // As a whole chunk, as a part of it, which must not be taken for read when it is asked for again,
  // and among others.
  for (const auto& [begin, size] : {std::pair(16, 16), {31, 1}, {31, 1}, {0, 216}}) {
    values.resize(size);
    const absl::Status status = (*reader)->ReadParameters(0, begin, absl::MakeSpan(values));
    CHECK(absl::IsDataLoss(status));
    CHECK(absl::StrContains(status.message(), path + " is damaged: the 64 bytes from byte "));
  }
  CHECK((*reader)->ReadOptimizerArray(0, 0, 0, absl::MakeSpan(values)).ok());
  CHECK((*reader)->ReadParameters(0, 32, absl::MakeSpan(values).subspan(0, 100)).ok());

  disk.Truncate(path, disk.Files()[path].size() - 1);
  const auto shorter = CheckpointReader::Open(&disk, "/c", config, kId);
  REQUIRE(shorter.ok());
  const absl::Status status = (*shorter)->ReadParameters(0, 0, absl::MakeSpan(values));
  CHECK(absl::IsDataLoss(status));
  CHECK(absl::StrContains(status.message(), "bytes in place of"));
}

TEST_CASE("only the files that are needed are opened") {
  RealStorage storage;
  const ScratchFolder folder;
  const PlannedConfig config = CheckpointConfig(3, {"partition.scheme=MEMORY_BASED"});
  WriteCheckpoint(&storage, folder.Path("c"), config, kId);
  const CheckpointFolder checkpoints(&storage, folder.Path("c"));
  std::filesystem::remove(checkpoints.FilePath(kId, ShardFileName(2, 3)));
  const auto reader = CheckpointReader::Open(&storage, folder.Path("c"), config, kId);
  REQUIRE(reader.ok());
  std::vector<float> value(1);
  CHECK((*reader)->ReadParameters(0, 0, absl::MakeSpan(value)).ok());
  const int last = static_cast<int>(config.model().tensors().size()) - 1;
  const absl::Status missing = (*reader)->ReadParameters(last, 9, absl::MakeSpan(value));
  CHECK(absl::IsDataLoss(missing));
  CHECK(absl::StrContains(missing.message(), "shard-2-of-3.safetensors"));
}

}  // namespace
}  // namespace evenshard
