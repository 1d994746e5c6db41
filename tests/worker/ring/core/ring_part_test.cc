#include "worker/ring/core/ring_part.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/testing/scratch_folder.h"
#include "tests/worker/ring/core/ring_of_rounds.h"

namespace evenshard {
namespace {

constexpr uint64_t kRun = 7;
constexpr char kAdam[] = "optimizer={kind: ADAM learning_rate: 0.01}";
const CheckpointId kId = {.generation = 1, .iteration = 3};

// Writes the checkpoint of a ring after 3 iterations.
void WriteCheckpoint(RingOfRounds& ring, RealStorage* storage, const std::string& folder) {
  const Cut cut = {.id = kId, .exchange = 3, .run = kRun};
  for (int rank = 0; rank < ring.workers(); ++rank) {
    RingOfRounds::Worker& worker = ring.worker(rank);
    RingPart::Copy copy;
    REQUIRE(worker.part->CopyTo(worker.parameters, &copy).ok());
    CHECK(copy.steps == 3);
    const CheckpointPart part = worker.part->checkpoint_part();
    auto writer = ShardFileWriter::Create(storage, folder, ring.config(), part, cut);
    INFO(writer.status().ToString());
    REQUIRE(writer.ok());
    for (const Chunk& chunk : part.chunks) {
      std::vector<const float*> state;
      for (size_t i = 1; i < copy.arrays.size(); ++i) {
        state.push_back(copy.arrays[i].data() + chunk.shard_offset);
      }
      const absl::Span<const float> parameters(copy.arrays[0].data() + chunk.shard_offset,
                                               static_cast<size_t>(chunk.size));
      const ChunkClock clock = {.version = 3, .iteration = 3, .steps = 3};
      REQUIRE((*writer)->Add(chunk, parameters, state, clock).ok());
    }
    WorkerSet all;
    REQUIRE((*writer)->Commit(1, {all}).ok());
  }
  const CheckpointFolder checkpoints(storage, folder);
  const auto complete = checkpoints.TryComplete(kId, kRun, ring.workers(), absl::UnixEpoch());
  INFO(complete.status().ToString());
  REQUIRE(complete.ok());
  REQUIRE(*complete);
}

// Makes every worker of a ring begin from the checkpoint.
void Restore(RingOfRounds& ring, RealStorage* storage, const std::string& folder) {
  for (int rank = 0; rank < ring.workers(); ++rank) {
    auto reader = CheckpointReader::Open(storage, folder, ring.config(), kId);
    INFO(reader.status().ToString());
    REQUIRE(reader.ok());
    const absl::Status restored =
        ring.worker(rank).part->Restore(**reader, absl::MakeSpan(ring.worker(rank).parameters));
    INFO(restored.ToString());
    REQUIRE(restored.ok());
  }
}

void RunFrom(RingOfRounds& ring, int first, int last) {
  const std::vector<float> all(ring.workers(), 1);
  for (int iteration = first; iteration < last; ++iteration) {
    RunIteration(ring, iteration, all, iteration);
  }
}

}  // namespace

TEST_CASE("a ring goes on from a checkpoint with the bits of one that was not interrupted") {
  const std::string encoding =
      GENERATE("exchange.parameter_encoding=FLOAT32", "exchange.parameter_encoding=BFLOAT16");
  const std::string model =
      GENERATE(std::string(kSmallRingModel),
               std::string("input { channels: 3 height: 6 width: 6 } layer { name: 'conv' conv { "
                           "out_channels: 8 kernel: 3 } } layer { name: 'norm' batch_norm {} } "
                           "layer { name: 'fc' linear { out_features: 10 } }"));
  INFO(encoding << " " << model);
  const std::vector<std::string> overrides = {kAdam, encoding};
  const ScratchFolder scratch;
  RealStorage storage;
  const std::string folder = scratch.Path("checkpoints");
  const auto owner = FolderOwner::Take(&storage, folder, kRun, "a test");
  REQUIRE(owner.ok());
  RingOfRounds ring(RingConfigOf(3, model, overrides));
  RunFrom(ring, 0, 3);
  WriteCheckpoint(ring, &storage, folder);
  RunFrom(ring, 3, 5);

  RingOfRounds again(RingConfigOf(3, model, overrides), /*first_iteration=*/3);
  Restore(again, &storage, folder);
  RunFrom(again, 3, 5);
  for (int rank = 0; rank < 3; ++rank) {
    RequireSame(again.worker(rank).parameters, ring.worker(0).parameters);
  }
}

TEST_CASE("a checkpoint of a ring can be read with another number of workers") {
  const int workers = GENERATE(2, 3, 5);
  INFO(workers << " workers");
  const ScratchFolder scratch;
  RealStorage storage;
  const std::string folder = scratch.Path("checkpoints");
  const auto owner = FolderOwner::Take(&storage, folder, kRun, "a test");
  REQUIRE(owner.ok());
  RingOfRounds ring(RingConfigOf(4, kSmallRingModel, {kAdam}));
  RunFrom(ring, 0, 3);
  WriteCheckpoint(ring, &storage, folder);
  RingOfRounds other(RingConfigOf(workers, kSmallRingModel, {kAdam}), /*first_iteration=*/3);
  Restore(other, &storage, folder);

  // Each element of each array, wherever it is.
  const auto arrays_of = [](RingOfRounds& of) {
    std::vector<std::vector<float>> arrays(3,
                                           std::vector<float>(of.config().model().buffer_size()));
    for (int rank = 0; rank < of.workers(); ++rank) {
      RingPart::Copy copy;
      REQUIRE(of.worker(rank).part->CopyTo(of.worker(rank).parameters, &copy).ok());
      REQUIRE(copy.arrays.size() == arrays.size());
      CHECK(copy.steps == 3);
      for (const Chunk& chunk : of.worker(rank).part->checkpoint_part().chunks) {
        for (size_t i = 0; i < arrays.size(); ++i) {
          std::copy_n(copy.arrays[i].data() + chunk.shard_offset, chunk.size,
                      arrays[i].begin() + chunk.model_offset);
        }
      }
    }
    return arrays;
  };
  CHECK(arrays_of(other) == arrays_of(ring));
}

}  // namespace evenshard
