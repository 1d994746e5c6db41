#ifndef EVENSHARD_TESTS_COMMON_CHECKPOINT_CHECKPOINT_FIXTURE_H_
#define EVENSHARD_TESTS_COMMON_CHECKPOINT_CHECKPOINT_FIXTURE_H_

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint_folder.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/shard_file_writer.h"
#include "common/placement/planned_config.h"

namespace evenshard {

inline constexpr uint64_t kRun = 0xabcdef0123456789;
inline const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

// A model with a convolution, a batch normalisation and a linear layer, on `shards` shards.
inline PlannedConfig CheckpointConfig(int shards, const std::vector<std::string>& overrides = {}) {
  std::string text = R"pb(
    model {
      input { channels: 3 height: 6 width: 6 }
      layer {
        name: "conv"
        conv { out_channels: 8 kernel: 3 }
      }
      layer {
        name: "norm"
        batch_norm {}
      }
      layer {
        name: "fc"
        linear { out_features: 10 }
      }
    }
    partition { scheme: STRIPED }
    workers: 2
    update { policy: SYNC }
    optimizer { kind: ADAM }
    training { iterations: 10 }
    compute { backend: EMULATED }
    limits { chunk_bytes: 256 }
  )pb";
  for (int i = 0; i < shards; ++i) absl::StrAppend(&text, "shard { address: \"host", i, ":1\" }\n");
  auto config = PlannedConfig::Parse(text, "run.textproto", overrides);
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *std::move(config);
}

// The value of an element of an array, where array 0 has the parameters. All are different.
inline float ValueOf(int array, int tensor, int64_t element) {
  return static_cast<float>((element * 8 + tensor) * 4 + array) / 4;
}

// The clock that a chunk has in a checkpoint that WriteCheckpoint made with such a config.
inline ChunkClock SyncClock(const PlannedConfig& config, const CheckpointId& id) {
  ChunkClock clock{.version = id.iteration - 1, .iteration = id.iteration};
  if (config.proto().update().max_norm() > 0) clock.norms = {0.1, 2};
  return clock;
}

inline absl::Status AddChunk(ShardFileWriter* writer, const PlannedConfig& config,
                             const Chunk& chunk, const ChunkClock& clock) {
  std::vector<float> arrays[3];
  for (int array = 0; array < 3; ++array) {
    for (int64_t i = 0; i < chunk.size; ++i) {
      arrays[array].push_back(ValueOf(array, chunk.tensor, chunk.begin + i));
    }
  }
  return writer->Add(chunk, arrays[0], {arrays[1].data(), arrays[2].data()}, clock);
}

inline std::vector<WorkerSet> MakeWorkerSets() {
  WorkerSet worker_set;
  worker_set.add_rank(0);
  worker_set.add_rank(1);
  return {worker_set};
}

// Writes the file and the record of one slot.
inline absl::Status WriteSlot(Storage* storage, const std::string& folder,
                              const PlannedConfig& config, int slot, const Cut& cut,
                              bool backwards = false) {
  auto writer = ShardFileWriter::Create(storage, folder, config, PartOfSlot(config, slot), cut);
  if (!writer.ok()) return writer.status();
  std::vector<uint32_t> ids(config.plan().chunks_of_shard(slot).begin(),
                            config.plan().chunks_of_shard(slot).end());
  if (backwards) std::reverse(ids.begin(), ids.end());
  for (const uint32_t id : ids) {
    const absl::Status added =
        AddChunk(writer->get(), config, config.plan().chunks()[id], SyncClock(config, cut.id));
    if (!added.ok()) return added;
  }
  return (*writer)->Commit(/*view=*/1, MakeWorkerSets());
}

inline Cut MakeCut(const CheckpointId& id, uint64_t run = kRun) {
  return {.id = id, .exchange = id.iteration, .run = run};
}

// Writes a complete checkpoint to a folder, which need not be there yet.
inline void WriteCheckpoint(Storage* storage, const std::string& folder,
                            const PlannedConfig& config, const CheckpointId& id) {
  if (!CheckOwner(storage, folder, kRun).ok()) {
    REQUIRE(FolderOwner::Take(storage, folder, kRun, "the test").ok());
  }
  for (int slot = 0; slot < config.shards(); ++slot) {
    const absl::Status written = WriteSlot(storage, folder, config, slot, MakeCut(id));
    INFO(written.message());
    REQUIRE(written.ok());
  }
  const auto complete =
      CheckpointFolder(storage, folder).TryComplete(id, kRun, config.shards(), kNow);
  INFO(complete.status().message());
  REQUIRE(complete.ok());
  REQUIRE(*complete);
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CHECKPOINT_CHECKPOINT_FIXTURE_H_
