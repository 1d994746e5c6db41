#include "server/recovery/initial_state.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/server/recovery/slot_fixture.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

const std::string kFolder = "/run";

TEST_CASE("a slot gets its part of a checkpoint, however the model was cut then") {
  const int shards = GENERATE(1, 2, 3);
  const std::string scheme = GENERATE("STRIPED", "MEMORY_BASED", "LAYER_BASED");
  const std::string chunk_bytes = GENERATE("limits.chunk_bytes=256", "limits.chunk_bytes=576");
  CAPTURE(shards, scheme, chunk_bytes);
  const std::vector<std::string> checkpoint = {"recovery.checkpoint.folder=\"" + kFolder + "\"",
                                               "recovery.checkpoint.every_iterations=5"};
  const PlannedConfig wrote = CheckpointConfig(2, checkpoint);
  SimulatedDisk disk;
  const CheckpointId id{.generation = 3, .iteration = 5};
  WriteCheckpoint(&disk, kFolder, wrote, id);

  std::vector<std::string> overrides = checkpoint;
  overrides.push_back("partition.scheme=" + scheme);
  overrides.push_back(chunk_bytes);
  const PlannedConfig config = CheckpointConfig(shards, overrides);
  for (int slot = 0; slot < shards; ++slot) {
    const auto state = MakeInitialState(config, slot, &disk, id.ToString());
    INFO(state.status().ToString());
    REQUIRE(state.ok());
    for (StoredChunk& chunk : (*state)->chunks()) {
      absl::MutexLock lock(&chunk.mutex);
      CHECK(chunk.clock() == SyncClock(config, id));
      for (int array = 0; array < chunk.arrays(); ++array) {
        for (int64_t i = 0; i < chunk.info().size; ++i) {
          REQUIRE(chunk.array(array)[i] ==
                  ValueOf(array, chunk.info().tensor, chunk.info().begin + i));
        }
      }
    }
  }
}

TEST_CASE("a slot gets the norms of a checkpoint if the run limits gradients") {
  const bool had_limit = GENERATE(false, true);
  const bool has_limit = GENERATE(false, true);
  const auto config_with = [](bool limits) {
    return CheckpointConfig(1, {"recovery.checkpoint.folder=\"" + kFolder + "\"",
                                "recovery.checkpoint.every_iterations=5",
                                limits ? "update.max_norm=2" : "update.max_norm=0"});
  };
  SimulatedDisk disk;
  const CheckpointId id{.generation = 3, .iteration = 5};
  WriteCheckpoint(&disk, kFolder, config_with(had_limit), id);
  const auto state = MakeInitialState(config_with(has_limit), 0, &disk, id.ToString());
  INFO(state.status().ToString());
  REQUIRE(state.ok());
  StoredChunk& chunk = (*state)->chunks()[0];
  absl::MutexLock lock(&chunk.mutex);
  CHECK(chunk.clock().norms == (!has_limit  ? std::vector<double>{}
                                : had_limit ? std::vector<double>{0.1, 2}
                                            : std::vector<double>{0, 0}));
}

TEST_CASE("an unknown or malformed checkpoint name is an error") {
  const PlannedConfig config = CheckpointConfig(
      1,
      {"recovery.checkpoint.folder=\"" + kFolder + "\"", "recovery.checkpoint.every_iterations=5"});
  SimulatedDisk disk;
  WriteCheckpoint(&disk, kFolder, config, {.generation = 1, .iteration = 5});
  CHECK(absl::IsInvalidArgument(MakeInitialState(config, 0, &disk, "../other").status()));
  CHECK(absl::IsInvalidArgument(
      MakeInitialState(config, 0, nullptr, CheckpointId{1, 5}.ToString()).status()));
  CHECK(
      absl::IsNotFound(MakeInitialState(config, 0, &disk, CheckpointId{1, 6}.ToString()).status()));
}

TEST_CASE("without a checkpoint the parameters are those of the file, or random ones") {
  std::vector<float> values(32);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) + 0.5f;
  const std::string header =
      R"({"fc/weight":{"dtype":"F32","shape":[8,4],"data_offsets":[0,128]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  file += header;
  file.append(reinterpret_cast<const char*>(values.data()), 128);
  const ScratchFolder scratch;
  const std::string path = scratch.Write("initial.safetensors", file);
  const auto config_with = [](const std::string& field) {
    auto config = PlannedConfig::Parse(R"(
      model {
        input { channels: 4 height: 1 width: 1 }
        layer { name: "fc" linear { out_features: 8 bias: false } }
        )" + field + R"(
      }
      partition { scheme: STRIPED }
      shard { address: "127.0.0.1:1" }
      shard { address: "127.0.0.1:2" }
      update { policy: SYNC }
      training { iterations: 1 }
      compute { backend: EMULATED }
      limits { chunk_bytes: 64 }
    )",
                                       "test.textproto", {});
    INFO(config.status().ToString());
    REQUIRE(config.ok());
    return *std::move(config);
  };
  const PlannedConfig given = config_with("initial_parameters: \"" + path + "\"");
  const PlannedConfig random = config_with("");
  RealStorage real;
  for (int slot = 0; slot < 2; ++slot) {
    for (Storage* const storage : {static_cast<Storage*>(nullptr), static_cast<Storage*>(&real)}) {
      const auto state = MakeInitialState(given, slot, storage, "");
      INFO(state.status().ToString());
      REQUIRE(state.ok());
      for (StoredChunk& chunk : (*state)->chunks()) {
        absl::MutexLock lock(&chunk.mutex);
        for (int64_t i = 0; i < chunk.info().size; ++i) {
          CHECK(chunk.parameters()[i] == values[chunk.info().begin + i]);
        }
      }
    }
    const auto state = MakeInitialState(random, slot, nullptr, "");
    auto store = ParameterStore::Create(random, slot);
    REQUIRE(state.ok());
    REQUIRE(store.ok());
    CHECK(StateOf(**state) == StateOf(**store));
  }
  scratch.Write("initial.safetensors", file.substr(0, 100));
  const auto damaged = MakeInitialState(given, 0, nullptr, "");
  CHECK_FALSE(damaged.ok());
  CHECK_THAT(std::string(damaged.status().message()), Catch::Contains("initial"));
}

}  // namespace
}  // namespace evenshard
