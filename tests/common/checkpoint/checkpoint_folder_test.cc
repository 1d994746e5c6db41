#include "common/checkpoint/checkpoint_folder.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checksum.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/checkpoint/checkpoint_fixture.h"
#include "tests/testing/scratch_folder.h"
#include "tests/testing/simulated_disk.h"

namespace evenshard {
namespace {

using State = CheckpointInfo::State;

constexpr CheckpointId kFirst = {.generation = 1, .iteration = 100};
constexpr CheckpointId kSecond = {.generation = 1, .iteration = 200};
constexpr CheckpointId kThird = {.generation = 2, .iteration = 150};
constexpr char kFolder[] = "/runs/c";

// What a folder has: the ids and states, the newest first.
std::vector<std::pair<CheckpointId, State>> States(const CheckpointFolder& folder) {
  const auto infos = folder.List();
  REQUIRE(infos.ok());
  std::vector<std::pair<CheckpointId, State>> states;
  for (const CheckpointInfo& info : *infos) states.emplace_back(info.id, info.state);
  return states;
}

using StateList = std::vector<std::pair<CheckpointId, State>>;

// Gives a text of records that was edited the checksum that it then has.
std::string Reseal(const std::string& text) {
  const size_t content = text.find("\"content\":") + 10;
  const std::string checksum =
      absl::StrFormat("%016x", Checksum(text.substr(content, text.size() - content - 2)));
  std::string resealed = text;
  return resealed.replace(text.find("\"checksum\":\"") + 12, 16, checksum);
}

TEST_CASE("names of checkpoints") {
  CHECK(kFirst.ToString() == "generation-0001-iteration-0000000100");
  const CheckpointId assigned = {1, 100, 2};
  CHECK(assigned.ToString() == "generation-0001-iteration-0000000100+2");
  CHECK(ParseCheckpointId(assigned.ToString()) == assigned);
  CHECK(assigned > kFirst);
  const CheckpointId large = {.generation = 123456, .iteration = 98765432109};
  CHECK(ParseCheckpointId(large.ToString()) == large);
  CHECK(ParseCheckpointId(kFirst.ToString()) == kFirst);
  for (const std::string other :
       {"", "generation-1-iteration-0000000100", "generation-0001-iteration-0000000100x",
        "generation-0001-iteration-0000000100+", "generation-0001-iteration-0000000100+0",
        "generation-0001-iteration-", "generation-0001", "generation--001-iteration-0000000100",
        "generation-0001-iteration-+000000100"}) {
    INFO(other);
    CHECK_FALSE(ParseCheckpointId(other).has_value());
  }
  CHECK(kThird > kSecond);
}

TEST_CASE("a checkpoint is complete when all shards have written and the manifest is there") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(3);
  const CheckpointFolder folder(&disk, kFolder);
  CHECK(States(folder).empty());
  CHECK(*folder.NextGeneration() == 1);
  const auto owner = FolderOwner::Take(&disk, kFolder, kRun, "the test");
  REQUIRE(owner.ok());
  CHECK(absl::IsNotFound(folder.TryComplete(kFirst, kRun, 3, kNow).status()));
  for (const int slot : {2, 0, 1}) {
    REQUIRE(WriteSlot(&disk, kFolder, config, slot, MakeCut(kFirst)).ok());
    if (slot != 1) CHECK(*folder.TryComplete(kFirst, kRun, 3, kNow) == false);
    CHECK(States(folder) == StateList{{kFirst, State::kIncomplete}});
  }
  CHECK((*folder.List())[0].why == "has no manifest, and the records of 3 shards");
  CHECK(*folder.Newest(Verification::kFull, false, nullptr) == std::nullopt);
  CHECK(*folder.TryComplete(kFirst, kRun, 3, kNow));
  CHECK(*folder.TryComplete(kFirst, kRun, 3, kNow + absl::Seconds(5)));

  const auto newest = folder.Newest(Verification::kFull, false, nullptr);
  REQUIRE(newest.ok());
  REQUIRE(newest->has_value());
  CHECK((*newest)->id == kFirst);
  CHECK((*newest)->written == kNow);
  CHECK((*newest)->facts->run == kRun);
  int64_t bytes = 0;
  for (const auto& [path, contents] : disk.Files()) {
    if (absl::EndsWith(path, ".safetensors")) bytes += contents.size();
  }
  CHECK((*newest)->bytes == bytes);
  CHECK(*folder.NextGeneration() == 2);
}

TEST_CASE("the newest checkpoint is that of the highest generation, then iteration") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  const CheckpointFolder folder(&disk, kFolder);
  for (const CheckpointId& id : {kSecond, kThird, kFirst}) {
    WriteCheckpoint(&disk, kFolder, config, id);
  }
  CHECK(States(folder) == StateList{{kThird, State::kComplete},
                                    {kSecond, State::kComplete},
                                    {kFirst, State::kComplete}});
  CHECK((*folder.Newest(Verification::kQuick, false, nullptr))->id == kThird);
}

TEST_CASE("a damaged checkpoint is named and passed over") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(2);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  WriteCheckpoint(&disk, kFolder, config, kSecond);
  const std::string data = folder.FilePath(kSecond, ShardFileName(1, 2));
  std::string why;
  Verification needed = Verification::kQuick;
  SECTION("a bit of its data") {
    disk.FlipBit(data, disk.Files()[data].size() - 1);
    why = "on do not have their checksum";
    needed = Verification::kFull;
  }
  SECTION("the end of its data") {
    disk.Truncate(data, disk.Files()[data].size() - 1);
    why = "bytes in place of";
  }
  SECTION("a file") {
    REQUIRE(disk.RemoveFile(data).ok());
    why = "shard-1-of-2.safetensors: no such file";
  }
  SECTION("a bit of its manifest") {
    disk.FlipBit(folder.FilePath(kSecond, kManifestName), 500);
    why = "manifest.json is damaged: its contents do not have its checksum";
  }
  SECTION("the end of its manifest") {
    disk.Truncate(folder.FilePath(kSecond, kManifestName), 500);
    why = "manifest.json is damaged: it does not begin and end as a checkpoint's record does";
  }
  std::vector<CheckpointInfo> damaged;
  const auto newest = folder.Newest(needed, false, &damaged);
  REQUIRE(newest.ok());
  CHECK((*newest)->id == kFirst);
  REQUIRE(damaged.size() == 1);
  CHECK(damaged[0].id == kSecond);
  INFO(damaged[0].why);
  CHECK(absl::StrContains(damaged[0].why, why));
  CHECK(absl::IsDataLoss(folder.Verify(kSecond, needed)));
  CHECK(folder.Verify(kFirst, Verification::kFull).ok());
}

TEST_CASE("every flipped bit is found, and every shorter file") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1, {"model={input {channels: 1 height: 1 width: 2} "
                                                    "layer {name: 'a' linear {out_features: 3}}}"});
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  REQUIRE(folder.Verify(kFirst, Verification::kFull).ok());
  for (const std::string& name : {std::string(kManifestName), ShardFileName(0, 1)}) {
    const std::string path = folder.FilePath(kFirst, name);
    const auto size = static_cast<int64_t>(disk.Files()[path].size());
    for (int64_t byte = 0; byte < size; ++byte) {
      const int bit = static_cast<int>(byte % 8);
      disk.FlipBit(path, byte, bit);
      INFO(name << " byte " << byte);
      REQUIRE_FALSE(folder.Verify(kFirst, Verification::kFull).ok());
      disk.FlipBit(path, byte, bit);
    }
    REQUIRE(folder.Verify(kFirst, Verification::kFull).ok());
    const std::string whole = disk.Files()[path];
    for (int64_t length = size - 1; length >= 0; --length) {
      disk.Truncate(path, length);
      REQUIRE_FALSE(folder.Verify(kFirst, Verification::kQuick).ok());
    }
    REQUIRE(WriteWholeFile(&disk, path, whole).ok());
  }
}

TEST_CASE("a checkpoint of another version is refused by name") {
  const auto [format, whose] = GENERATE(table<int, std::string>({{5, "an older"}, {7, "a newer"}}));
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  const std::string path = folder.FilePath(kFirst, kManifestName);
  const std::string other = Reseal(absl::StrReplaceAll(
      disk.Files()[path], {{"\"format\":6", absl::StrCat("\"format\":", format)}}));
  REQUIRE(WriteWholeFile(&disk, path, other).ok());
  const absl::Status status = CheckpointReader::Open(&disk, kFolder, config, kFirst).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message() == absl::StrCat(path, " was written by ", whose,
                                         " version of Evenshard: it has format ", format,
                                         ", allowed: 6"));
  CHECK((*folder.List())[0].state == State::kDamaged);
}

TEST_CASE("a manifest whose fields make no sense is refused, not believed") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(2);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  const std::string path = folder.FilePath(kFirst, kManifestName);
  const std::string good = disk.Files()[path];
  REQUIRE(Reseal(good) == good);
  const auto [from, to] = GENERATE(table<std::string, std::string>({
      {"\"shards\":2", "\"shards\":3"},
      {"\"shards\":2", "\"shards\":-2"},
      {"\"shards\":2", "\"shards\":\"2\""},
      {"\"run\":", "\"walk\":"},
      {"\"shard\":1,", "\"shard\":0,"},
      {"\"shard\":1,", "\"shard\":2147483647,"},
      {"\"records\":", "\"deep\":[[[[[[[]]]]]]],\"records\":"},
      {"\"offsets\":[", "\"offsets\":[9999999,"},
      {"\"offsets\":[", "\"offsets\":[9223372036854775807,"},
      {"\"chunk_sizes\":[", "\"chunk_sizes\":[0,"},
      {"\"chunk_sizes\":[", "\"chunk_sizes\":[9223372036854775807,"},
      {"\"clocks\":[0", "\"clocks\":[1"},
      {"\"clocks\":[0", "\"clocks\":[4294967296"},
      {"\"checksums\":[[", "\"checksums\":[[],["},
      {"\"checksums\":[[\"", "\"checksums\":[[\"x"},
      {"\"records\":", "\"records\":7,\"old\":"},
      {"\"content\":{", "\"content\":[{"},
  }));
  REQUIRE(absl::StrContains(good, from));
  const std::string bad = Reseal(absl::StrReplaceAll(good, {{from, to}}));
  INFO(from << " " << to);
  REQUIRE(WriteWholeFile(&disk, path, bad).ok());
  const absl::Status status = folder.Verify(kFirst, Verification::kQuick);
  CHECK(absl::IsDataLoss(status));
  CHECK(absl::StrContains(status.message(), path + " is damaged: "));
}

TEST_CASE("old checkpoints are removed, and never the newest complete one") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  const CheckpointFolder folder(&disk, kFolder);
  const auto id = [](uint64_t iteration) { return CheckpointId{1, iteration}; };
  for (const uint64_t i : {1, 2, 4, 5, 7}) WriteCheckpoint(&disk, kFolder, config, id(i));
  for (const uint64_t i : {3, 6, 8}) {
    REQUIRE(disk.MakeFolder(folder.FilePath(id(i), "")).ok());
    REQUIRE(WriteWholeFile(&disk, folder.FilePath(id(i), ShardFileName(0, 1)), "torn").ok());
  }
  disk.FlipBit(folder.FilePath(id(5), kManifestName), 5);
  REQUIRE(WriteWholeFile(&disk, absl::StrCat(kFolder, "/notes.txt"), "mine").ok());
  REQUIRE(folder.RemoveOld(2).ok());
  CHECK(States(folder) == StateList{{id(8), State::kIncomplete},
                                    {id(7), State::kComplete},
                                    {id(5), State::kDamaged},
                                    {id(4), State::kComplete}});
  REQUIRE(folder.RemoveOld(1).ok());
  CHECK(States(folder) == StateList{{id(8), State::kIncomplete}, {id(7), State::kComplete}});
  REQUIRE(folder.RemoveOld(1).ok());
  CHECK(States(folder).size() == 2);
  CHECK(folder.Verify(id(7), Verification::kFull).ok());
  CHECK(disk.Files().contains(absl::StrCat(kFolder, "/notes.txt")));
}

TEST_CASE("a stranger's file in an old checkpoint stays") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  const std::string notes = folder.FilePath(kFirst, "notes.txt");
  REQUIRE(WriteWholeFile(&disk, notes, "mine").ok());
  WriteCheckpoint(&disk, kFolder, config, kSecond);
  const absl::Status status = folder.RemoveOld(1);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(absl::StrContains(status.message(), kFirst.ToString()));
  CHECK(disk.Files().contains(notes));
  CHECK(States(folder)[1].second == State::kIncomplete);
}

TEST_CASE("a symbolic link in place of a checkpoint is not read, written to or removed") {
  RealStorage storage;
  const ScratchFolder scratch;
  const PlannedConfig config = CheckpointConfig(1);
  const std::string path = scratch.Path("c");
  const CheckpointFolder folder(&storage, path);
  WriteCheckpoint(&storage, path, config, kFirst);
  const std::string others = scratch.Path("others");
  WriteCheckpoint(&storage, others, config, kSecond);
  const std::string file = others + "/" + kSecond.ToString() + "/" + ShardRecordName(0, 1);
  const std::string manifest = others + "/" + kSecond.ToString() + "/" + kManifestName;
  for (const CheckpointId& id : {kSecond, kThird}) {
    std::filesystem::create_directory_symlink(others + "/" + kSecond.ToString(),
                                              path + "/" + id.ToString());
  }
  CHECK(States(folder) == StateList{{kFirst, State::kComplete}});
  REQUIRE(folder.RemoveOld(0).ok());
  CHECK(States(folder).empty());
  CHECK(std::filesystem::exists(file));
  const absl::Status written = WriteSlot(&storage, path, config, 0, MakeCut(kThird));
  CHECK(absl::IsFailedPrecondition(written));
  CHECK(absl::EndsWith(written.message(), "it is a symbolic link, allowed: a folder"));
  REQUIRE(storage.RemoveFile(manifest).ok());
  REQUIRE(folder.RemoveIncomplete(kThird, kRun).ok());
  CHECK(std::filesystem::exists(file));
}

TEST_CASE("power may fail at any moment: what is complete can be read, and nothing is lost") {
  const PlannedConfig config = CheckpointConfig(2);
  int completed = 0;
  int64_t operation = 0;
  for (bool done = false; !done; ++operation) {
    SimulatedDisk disk;
    const CheckpointFolder folder(&disk, kFolder);
    WriteCheckpoint(&disk, kFolder, config, kFirst);
    disk.FailFrom(operation);
    bool complete = false;
    bool written = true;
    for (int slot = 0; slot < 2; ++slot) {
      written = written && WriteSlot(&disk, kFolder, config, slot, MakeCut(kSecond)).ok();
    }
    if (written) {
      const auto tried = folder.TryComplete(kSecond, kRun, 2, kNow);
      complete = tried.ok() && *tried;
    }
    done = complete && folder.RemoveOld(1).ok() && disk.has_power();
    disk.Restart();

    INFO("operation " << operation);
    const auto newest = folder.Newest(Verification::kFull, false, nullptr);
    REQUIRE(newest.ok());
    REQUIRE(newest->has_value());
    REQUIRE((*newest)->id == (complete ? kSecond : kFirst));
    for (const auto& [id, state] : States(folder)) REQUIRE(state != State::kDamaged);
    const auto files = disk.Files();
    for (int slot = 0; slot < 2; ++slot) {
      if (!files.contains(folder.FilePath(kSecond, ShardRecordName(slot, 2)))) continue;
      REQUIRE(files.contains(folder.FilePath(kSecond, ShardFileName(slot, 2))));
    }
    const auto reader = CheckpointReader::Open(&disk, kFolder, config, (*newest)->id);
    REQUIRE(reader.ok());
    std::vector<float> values(10);
    REQUIRE((*reader)->ReadOptimizerArray(1, 0, 3, absl::MakeSpan(values)).ok());
    REQUIRE(values[0] == ValueOf(2, 0, 3));
    completed += complete ? 1 : 0;

    // The run goes on and writes the same cut again.
    for (int slot = 0; !complete && slot < 2; ++slot) {
      REQUIRE(WriteSlot(&disk, kFolder, config, slot, MakeCut(kSecond)).ok());
    }
    REQUIRE(*folder.TryComplete(kSecond, kRun, 2, kNow));
    REQUIRE(folder.RemoveOld(1).ok());
    REQUIRE(States(folder) == StateList{{kSecond, State::kComplete}});
    REQUIRE(folder.Verify(kSecond, Verification::kFull).ok());
  }
  CHECK(operation > 50);
  CHECK(completed > 3);
}

TEST_CASE("a checkpoint that is removed while it is looked at is not called damaged") {
  SimulatedDisk disk;
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, CheckpointConfig(1), kFirst);
  const std::string data = folder.FilePath(kFirst, ShardFileName(0, 1));
  REQUIRE(disk.RemoveFile(data).ok());
  CHECK(States(folder) == StateList{{kFirst, State::kDamaged}});
  const std::string manifest = folder.FilePath(kFirst, kManifestName);
  int opened = 0;
  disk.SetFault([&](SimulatedDisk::Operation operation, const std::string& path) {
    const bool gone =
        operation == SimulatedDisk::Operation::kOpen && path == manifest && ++opened == 2;
    return gone ? absl::NotFoundError("removed") : absl::OkStatus();
  });
  CHECK(States(folder) == StateList{{kFirst, State::kIncomplete}});
}

TEST_CASE("an old checkpoint of which a crash brings back a part is passed over and removed") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  WriteCheckpoint(&disk, kFolder, config, kSecond);
  REQUIRE(folder.RemoveOld(1).ok());
  disk.Restart();
  disk.Revive(folder.FilePath(kFirst, kManifestName));
  CHECK(States(folder) == StateList{{kSecond, State::kComplete}, {kFirst, State::kDamaged}});
  CHECK((*folder.Newest(Verification::kFull, false, nullptr))->id == kSecond);
  REQUIRE(folder.RemoveOld(1).ok());
  CHECK(States(folder).size() == 1);
}

TEST_CASE("a full or a read-only folder is an error, and what is there stays") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(2);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  using Operation = SimulatedDisk::Operation;
  const auto [failing, error] = GENERATE(table<Operation, absl::Status>({
      {Operation::kCreate, absl::ResourceExhaustedError("No space left on device")},
      {Operation::kWrite, absl::ResourceExhaustedError("No space left on device")},
      {Operation::kCommit, absl::ResourceExhaustedError("No space left on device")},
      {Operation::kMake, absl::PermissionDeniedError("Read-only file system")},
      {Operation::kCreate, absl::PermissionDeniedError("Read-only file system")},
  }));
  const auto before = disk.Files();
  disk.SetFault([failing = failing, error = error](Operation operation, const std::string&) {
    return operation == failing ? error : absl::OkStatus();
  });
  CHECK(WriteSlot(&disk, kFolder, config, 1, MakeCut(kSecond)) == error);
  CHECK(disk.Files() == before);
  disk.SetFault(nullptr);
  CHECK((*folder.Newest(Verification::kFull, false, nullptr))->id == kFirst);
  CHECK(WriteSlot(&disk, kFolder, config, 1, MakeCut(kSecond)).ok());
}

TEST_CASE("what lacks the record of a slot that has left it out is removed") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(2);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, {1, 10});
  const auto write = [&](int slot, const CheckpointId& id) {
    REQUIRE(WriteSlot(&disk, kFolder, config, slot, MakeCut(id)).ok());
  };
  write(0, {1, 20});
  write(0, {2, 30});
  write(1, {2, 40});
  write(1, {2, 50});
  write(1, {2, 60});
  // Slot 0 has begun 50 and left 40 out. It has not come to 60.
  REQUIRE(folder.RemoveLeftOut({2, 50}, CheckpointId{2, 50}, kRun, 0, 2).ok());
  CHECK(States(folder) == StateList{{{2, 60}, State::kIncomplete},
                                    {{2, 50}, State::kIncomplete},
                                    {{2, 30}, State::kIncomplete},
                                    {{1, 10}, State::kComplete}});
  CHECK(absl::IsFailedPrecondition(folder.RemoveLeftOut({2, 60}, std::nullopt, kRun + 1, 0, 2)));
}

TEST_CASE("records of different configs or of another run do not make a checkpoint") {
  SimulatedDisk disk;
  const CheckpointFolder folder(&disk, kFolder);
  REQUIRE(FolderOwner::Take(&disk, kFolder, kRun, "the test").ok());
  REQUIRE(WriteSlot(&disk, kFolder, CheckpointConfig(2), 0, MakeCut(kFirst)).ok());
  const PlannedConfig other = CheckpointConfig(2, {"optimizer.learning_rate=0.5"});
  REQUIRE(WriteSlot(&disk, kFolder, other, 1, MakeCut(kFirst)).ok());
  const auto tried = folder.TryComplete(kFirst, kRun, 2, kNow);
  CHECK(absl::IsFailedPrecondition(tried.status()));
  CHECK(absl::EndsWith(
      tried.status().message(),
      "shard-1-of-2.json is not of the same run, config and cut as this checkpoint"));
}

TEST_CASE(
    "a record that is damaged before the manifest is written keeps the checkpoint incomplete") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(1);
  const CheckpointFolder folder(&disk, kFolder);
  REQUIRE(FolderOwner::Take(&disk, kFolder, kRun, "the test").ok());
  REQUIRE(WriteSlot(&disk, kFolder, config, 0, MakeCut(kFirst)).ok());
  SECTION("the record") { disk.FlipBit(folder.FilePath(kFirst, ShardRecordName(0, 1)), 100); }
  SECTION("its file") { disk.Truncate(folder.FilePath(kFirst, ShardFileName(0, 1)), 100); }
  CHECK(absl::IsDataLoss(folder.TryComplete(kFirst, kRun, 1, kNow).status()));
  CHECK(States(folder) == StateList{{kFirst, State::kIncomplete}});
  // Written again, it is whole.
  REQUIRE(WriteSlot(&disk, kFolder, config, 0, MakeCut(kFirst)).ok());
  CHECK(*folder.TryComplete(kFirst, kRun, 1, kNow));
}

}  // namespace
TEST_CASE("a checkpoint that cannot be read now is passed over only on demand") {
  SimulatedDisk disk;
  const PlannedConfig config = CheckpointConfig(2);
  const CheckpointFolder folder(&disk, kFolder);
  WriteCheckpoint(&disk, kFolder, config, kFirst);
  WriteCheckpoint(&disk, kFolder, config, kSecond);
  std::string unreadable = kSecond.ToString();
  disk.SetFault([&](SimulatedDisk::Operation operation, const std::string& path) {
    const bool fails =
        operation == SimulatedDisk::Operation::kRead && absl::StrContains(path, unreadable);
    return fails ? absl::UnknownError("Input/output error") : absl::OkStatus();
  });
  CHECK(absl::IsUnavailable(folder.Newest(Verification::kFull, false, nullptr).status()));
  std::vector<CheckpointInfo> passed_over;
  CHECK((*folder.Newest(Verification::kFull, true, &passed_over))->id == kFirst);
  REQUIRE(passed_over.size() == 1);
  CHECK(passed_over[0].is_unreadable);
  // Nobody begins anew because nothing can be read.
  unreadable = "generation";
  CHECK(absl::IsUnavailable(folder.Newest(Verification::kFull, true, nullptr).status()));
}

}  // namespace evenshard
