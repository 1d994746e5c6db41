#include "tools/psctl/report/checkpoints_report.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "common/checkpoint/storage/real_storage.h"
#include "nlohmann/json.hpp"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

constexpr CheckpointId kFirst = {.generation = 1, .iteration = 100};
constexpr CheckpointId kSecond = {.generation = 1, .iteration = 200};
constexpr CheckpointId kThird = {.generation = 2, .iteration = 250};

// A complete checkpoint, one with a flipped bit and one that is incomplete.
void WriteThree(Storage* storage, const std::string& folder) {
  const PlannedConfig config = CheckpointConfig(2);
  WriteCheckpoint(storage, folder, config, kFirst);
  WriteCheckpoint(storage, folder, config, kSecond);
  REQUIRE(WriteSlot(storage, folder, config, 1, MakeCut(kThird)).ok());
}

TEST_CASE("a report has every checkpoint, the newest first, with what is wrong with it") {
  SimulatedDisk disk;
  WriteThree(&disk, "/c");
  const std::string data = CheckpointFolder(&disk, "/c").FilePath(kSecond, ShardFileName(0, 2));
  disk.FlipBit(data, disk.Files()[data].size() - 1);
  const absl::Time now = kNow + absl::Seconds(90);
  const auto quick = MakeCheckpointsReport(&disk, "/c", Verification::kQuick, now);
  REQUIRE(quick.ok());
  CHECK_FALSE(quick->has_damaged());
  const auto full = MakeCheckpointsReport(&disk, "/c", Verification::kFull, now);
  REQUIRE(full.ok());
  CHECK(full->has_damaged());

  const std::string text = CheckpointsText(*full);
  INFO(text);
  CHECK(absl::StrContains(text, "incomplete: has no manifest, and the records of 1 shards"));
  CHECK(absl::StrContains(text, "custom  damaged: " + data + " is damaged: the "));
  CHECK(absl::StrContains(text, "        1        100  1m30s"));
  CHECK(absl::EndsWith(text, "custom  complete\n"));

  const auto json = nlohmann::json::parse(CheckpointsJson(*full), nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["folder"] == "/c");
  CHECK(json["run"] == "abcdef0123456789");
  REQUIRE(json["checkpoints"].size() == 3);
  CHECK(json["checkpoints"][0]["name"] == kThird.ToString());
  CHECK(json["checkpoints"][0]["state"] == "incomplete");
  CHECK(json["checkpoints"][1]["state"] == "damaged");
  const auto& complete = json["checkpoints"][2];
  CHECK(complete["generation"] == 1);
  CHECK(complete["iteration"] == 100);
  CHECK(complete["age_seconds"] == 90.0);
  CHECK(complete["settings"]["optimizer.kind"] == "ADAM");
  CHECK(complete["shards"] == 2);
  CHECK_FALSE(complete.contains("why"));
}

TEST_CASE("a folder without checkpoints says so, one that is missing is an error") {
  SimulatedDisk disk;
  REQUIRE(disk.MakeFolder("/c").ok());
  const auto report = MakeCheckpointsReport(&disk, "/c", Verification::kQuick, kNow);
  REQUIRE(report.ok());
  CHECK(CheckpointsText(*report) == "no checkpoints in /c\n");
  CHECK(nlohmann::json::parse(CheckpointsJson(*report))["run"].is_null());
  CHECK(absl::IsNotFound(MakeCheckpointsReport(&disk, "/d", Verification::kQuick, kNow).status()));
}

TEST_CASE("psctl checkpoints: exit code 1 if a complete one is damaged, 2 for wrong usage") {
  RealStorage storage;
  const ScratchFolder scratch;
  const std::string folder = scratch.Path("c");
  WriteThree(&storage, folder);
  const auto run = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"tools/psctl/psctl", "checkpoints"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    Program program(command);
    const int code = program.Wait();
    return std::pair(code, program.output());
  };
  CHECK(run({"--folder=" + folder}).first == 0);
  CHECK(run({"--folder=" + folder, "--verify"}).first == 0);
  const std::string config = R"pb(
    model { builtin: "mnist_mlp" }
    partition { scheme: MEMORY_BASED }
    update { policy: SYNC }
    training { iterations: 1 }
    compute { backend: EMULATED }
    shard { address: "a:1" }
  )pb";
  const std::string with = scratch.Write(
      "with", config + "recovery { checkpoint { folder: \"c\" every_iterations: 1 } }");
  const auto [code, output] = run({"--config=" + with, "--format=json"});
  CHECK(code == 0);
  CHECK(nlohmann::json::parse(output, nullptr, false)["checkpoints"].size() == 3);

  const std::string path = CheckpointFolder(&storage, folder).FilePath(kFirst, ShardFileName(0, 2));
  std::string data = scratch.Read("c/" + kFirst.ToString() + "/" + ShardFileName(0, 2));
  data.back() = static_cast<char>(data.back() ^ 1);
  REQUIRE(WriteWholeFile(&storage, path, data).ok());
  CHECK(run({"--folder=" + folder}).first == 0);
  CHECK(run({"--folder=" + folder, "--verify"}).first == 1);

  const auto [none, none_error] = run({"--folder=" + scratch.Path("none")});
  CHECK(none == 1);
  CHECK(absl::StrContains(none_error, "No such file or directory"));
  const auto [without, without_error] = run({"--config=" + scratch.Write("without", config)});
  CHECK(without == 2);
  CHECK(absl::StrContains(without_error,
                          ":1: recovery.checkpoint: is missing, so that this run writes no"));
  const auto [neither, neither_error] = run({});
  CHECK(neither == 2);
  CHECK(absl::StrContains(neither_error, "neither or both of --config and --folder"));
  CHECK(run({"--folder=" + folder, "--format=xml"}).first == 2);
}

}  // namespace
}  // namespace evenshard
