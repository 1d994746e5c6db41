// Runs by launch, and of ps alone, that go on from checkpoints, and folders of checkpoints that are
// not as they should be. Real processes on a real file system.

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

// Two workers whose gradients are always the same, while the rate falls, so that an update that is
// lost, made twice or made with another iteration's rate shows in the model.
class ResumeRun {
 public:
  explicit ResumeRun(const std::string& recovery = "") : recovery_(recovery) {
    config = Configure(/*shards=*/2);
  }

  // Writes a config and returns its path.
  std::string Configure(int shards) const {
    std::string text = R"(
      model {
        input { channels: 1 height: 8 width: 8 }
        layer { name: "fc1" linear { out_features: 32 } }
        layer { relu {} }
        layer { name: "fc2" linear { out_features: 10 } }
      }
      partition { scheme: MEMORY_BASED }
      workers: 2
      update { policy: SYNC deterministic: true }
      optimizer { kind: MOMENTUM schedule { kind: STEP step_iterations: 1 gamma: 0.99 } }
      training { iterations: 100 }
      compute { backend: EMULATED }
      limits { chunk_bytes: 1024 shutdown_seconds: 30 }
    )";
    for (int i = 0; i < shards; ++i) {
      absl::StrAppend(&text, "shard { address: \"unix:", folder.Path(absl::StrCat(i, ".sock")),
                      "\" }\n");
    }
    absl::StrAppend(&text, "recovery { checkpoint { folder: \"checkpoints/run\" ",
                    "every_iterations: 20 } ", recovery_, " }\n");
    return folder.Write(absl::StrCat(shards, ".textproto"), text);
  }

  std::vector<std::string> Launch(const std::vector<std::string>& flags) const {
    std::vector<std::string> command = {"tools/launch/launch", "--config=" + config};
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }
  // Returns what launch said, and the model if it wrote one.
  struct Outcome {
    int code;
    std::string output;
    std::string model;
  };
  // Trains up to the iteration. Only where the run ends is a checkpoint, so that none is left out,
  // however slow the disk is.
  Outcome TrainTo(int iteration, std::vector<std::string> flags = {}) const {
    flags.push_back(absl::StrCat("--set=training.iterations=", iteration));
    flags.emplace_back("--set=recovery.checkpoint.every_iterations=1000");
    return Train(std::move(flags));
  }
  Outcome Train(std::vector<std::string> flags) const {
    std::filesystem::remove(folder.Path("model"));
    flags.push_back("--save=" + folder.Path("model"));
    Program launch(Launch(flags));
    const int code = launch.Wait();
    return {code, launch.output(), folder.Read("model")};
  }
  // The contents of all files of checkpoints, but for who holds the folder.
  std::map<std::string, std::string> Files() const {
    std::map<std::string, std::string> files;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(folder.Path("checkpoints"))) {
      const std::string name = entry.path().filename();
      if (!entry.is_regular_file() || name == "LOCK" || name == "RUN") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path()] = {std::istreambuf_iterator<char>(file), {}};
    }
    return files;
  }

  const ScratchFolder folder;
  std::string config;

 private:
  const std::string recovery_;
};

// The model after all iterations, from a run that nothing disturbs.
const std::string& Undisturbed() {
  static const std::string model = [] {
    const ResumeRun run;
    const ResumeRun::Outcome outcome = run.Train({});
    INFO(outcome.output);
    REQUIRE(outcome.code == 0);
    REQUIRE_FALSE(outcome.model.empty());
    return outcome.model;
  }();
  return model;
}

// Whether this machine allows a process to have mounts of its own.
bool HasNamespaces() { return Program({"/usr/bin/unshare", "-Urm", "true"}).Wait() == 0; }

// The command in namespaces of its own, after `mount` has been done there.
std::vector<std::string> With(const std::string& mount, const std::vector<std::string>& command) {
  return {"/usr/bin/unshare", "-Urm", "sh", "-c",
          absl::StrCat(mount, " && exec '", absl::StrJoin(command, "' '"), "'")};
}

}  // namespace

TEST_CASE("a run goes on, on other shards and with another scheme too, to the same bits") {
  ResumeRun run;
  const ResumeRun::Outcome half = run.TrainTo(47);
  INFO(half.output);
  REQUIRE(half.code == 0);
  CHECK(half.model != Undisturbed());
  std::vector<std::string> flags = {"--resume"};
  SECTION("as it was") {}
  SECTION("with another scheme") { flags.push_back("--set=partition.scheme=LAYER_BASED"); }
  SECTION("on three shards") { run.config = run.Configure(3); }
  SECTION("with other chunks") { flags.push_back("--set=limits.chunk_bytes=4096"); }
  const ResumeRun::Outcome rest = run.Train(flags);
  INFO(rest.output);
  CHECK(rest.code == 0);
  CHECK_THAT(rest.output, Contains("goes on after iteration 47 of 100"));
  CHECK((rest.model == Undisturbed()));
}

TEST_CASE("ps without launch begin from a checkpoint with --resume, and only with it") {
  const ResumeRun run;
  REQUIRE(run.TrainTo(60).code == 0);
  const auto start = [&](const std::string& program, const std::string& place, bool resumes) {
    std::vector<std::string> command = {program, place, "--config=" + run.config};
    if (resumes) command.emplace_back("--resume");
    return std::make_unique<Program>(command);
  };
  const auto refused = start("server/ps", "--shard=0", false);
  CHECK(refused->Wait() == 2);
  CHECK_THAT(refused->output(), Contains("has checkpoints of an earlier run"));
  const std::unique_ptr<Program> shards[] = {start("server/ps", "--shard=0", true),
                                             start("server/ps", "--shard=1", true)};
  const std::unique_ptr<Program> workers[] = {start("worker/worker", "--rank=0", false),
                                              start("worker/worker", "--rank=1", false)};
  for (const auto& worker : workers) {
    const int code = worker->Wait();
    INFO(worker->output());
    CHECK(code == 0);
    CHECK_THAT(worker->output(), Contains("goes on after iteration 60 of 100"));
  }
  Program save(
      {"tools/psctl/psctl", "save", "--config=" + run.config, "--out=" + run.folder.Path("saved")});
  CHECK(save.Wait() == 0);
  CHECK((run.folder.Read("saved") == Undisturbed()));
  for (const auto& shard : shards) {
    REQUIRE(kill(shard->pid(), SIGTERM) == 0);
    CHECK(shard->Wait() == 0);
  }
  CHECK(std::filesystem::exists(
      run.folder.Path("checkpoints/run/generation-0002-iteration-0000000100/manifest.json")));
}

TEST_CASE("checkpoints of another training are refused, and stay as they are") {
  const ResumeRun run;
  REQUIRE(run.TrainTo(60).code == 0);
  const auto before = run.Files();
  REQUIRE(before.size() >= 3);
  std::string flag, reason;
  SECTION("another model") {
    flag = "--set=model.layer[2].linear.out_features=11";
    reason = "is of another model, custom, than custom: fc2/weight has the shape [10, 32] there";
  }
  SECTION("another optimizer") {
    flag = "--set=optimizer.kind=ADAM";
    reason = "was written with optimizer.kind MOMENTUM, but this config has ADAM";
  }
  SECTION("another number of workers") {
    flag = "--set=workers=3";
    reason = "was written with workers: 2, but this config has 3";
  }
  const ResumeRun::Outcome outcome = run.Train({"--resume", flag});
  INFO(outcome.output);
  CHECK(outcome.code == 2);  // before any process has started
  CHECK_THAT(outcome.output, Contains(reason) && !Contains("[ps "));
  CHECK(outcome.model.empty());
  CHECK((run.Files() == before));
}

TEST_CASE("damaged checkpoints are passed over by name, and an older one is used") {
  const ResumeRun run;
  REQUIRE(run.TrainTo(40).code == 0);
  REQUIRE(run.TrainTo(60, {"--resume"}).code == 0);
  const std::string newest =
      run.folder.Path("checkpoints/run/generation-0002-iteration-0000000060");
  std::string expected = "passed over generation-0002-iteration-0000000060, which is ";
  SECTION("no manifest") {
    REQUIRE(std::filesystem::remove(newest + "/manifest.json"));
    expected += "incomplete";
  }
  SECTION("a file is cut short") {
    const std::string file = newest + "/shard-0-of-2.safetensors";
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
    expected += "damaged";
  }
  SECTION("a bit is flipped") {
    std::fstream file(newest + "/shard-1-of-2.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    REQUIRE(file.is_open());
    file.seekg(-5, std::ios::end);
    const char flipped = static_cast<char>(file.get() ^ 4);
    file.seekp(-5, std::ios::end);
    file.put(flipped);
    expected += "damaged";
  }
  const ResumeRun::Outcome outcome = run.Train({"--resume"});
  INFO(outcome.output);
  CHECK(outcome.code == 0);
  CHECK_THAT(outcome.output, Contains(expected));
  CHECK((outcome.model == Undisturbed()));
}

TEST_CASE("a ps that cannot read a checkpoint yet ends on a signal") {
  const ResumeRun run;
  REQUIRE(run.TrainTo(40).code == 0);
  const std::string part = run.folder.Path(
      "checkpoints/run/generation-0001-iteration-0000000040/shard-0-of-2.safetensors");
  REQUIRE(std::filesystem::remove(part));
  std::filesystem::create_directory(part);
  for (const int number : {SIGTERM, SIGINT}) {
    for (int shard = 0; shard < 2; ++shard) {
      Program ps({"server/ps", "--config=" + run.config, absl::StrCat("--shard=", shard),
                  "--resume", "--set=limits.startup_seconds=86400"});
      ps.WaitFor("trying again for 24h");
      REQUIRE(kill(ps.pid(), number) == 0);
      CHECK(ps.Wait() == 0);
      CHECK_THAT(ps.output(), Contains("ending before the checkpoint to begin from is read"));
    }
  }
}

TEST_CASE("two runs cannot use one folder at a time") {
  const ResumeRun first;
  Program running(first.Launch({"--set=training.iterations=1000000000"}));
  running.WaitFor("is complete");
  const ResumeRun second;
  const ResumeRun::Outcome outcome = second.Train(
      {"--resume", "--set=recovery.checkpoint.folder=" + first.folder.Path("checkpoints/run")});
  INFO(outcome.output);
  CHECK(outcome.code == 1);
  CHECK_THAT(outcome.output, Contains("LOCK is locked by run "));
  REQUIRE(kill(running.pid(), SIGTERM) == 0);
  CHECK(running.Wait() == 128 + SIGTERM);
}

TEST_CASE("a folder that is read-only is refused at the start") {
  if (!HasNamespaces()) return;
  const ResumeRun run;
  const std::string place = run.folder.Path("checkpoints");
  std::filesystem::create_directory(place);
  Program launch(With("mount -t tmpfs -o ro none " + place, run.Launch({})));
  const int code = launch.Wait();
  INFO(launch.output());
  CHECK(code == 1);
  CHECK_THAT(launch.output(), Contains(place) && Contains("Read-only file system"));
}

TEST_CASE("training goes on while the disk of the checkpoints is full") {
  if (!HasNamespaces()) return;
  const ResumeRun run;
  const std::string place = run.folder.Path("checkpoints");
  std::filesystem::create_directory(place);
  Program launch(With("mount -t tmpfs -o size=16k none " + place,
                      run.Launch({"--save=" + run.folder.Path("model")})));
  const int code = launch.Wait();
  INFO(launch.output());
  CHECK(code == 0);
  CHECK_THAT(launch.output(),
             Contains("no checkpoint of iteration 20: ") && Contains("No space left on device"));
  CHECK((run.folder.Read("model") == Undisturbed()));
}

TEST_CASE("a run whose last round is not whole says where one that resumes goes on") {
  const ResumeRun run;
  const std::string local = "--set=local={steps: 4 optimizer {kind: SGD}}";
  const ResumeRun::Outcome first = run.TrainTo(10, {local});
  INFO(first.output);
  REQUIRE(first.code == 0);
  CHECK_THAT(first.output, Contains("[worker 0] ") &&
                               Contains("a run that resumes goes on after iteration 12, not 10"));
  const ResumeRun::Outcome second = run.TrainTo(20, {local, "--resume"});
  INFO(second.output);
  CHECK(second.code == 0);
  CHECK_THAT(second.output, Contains("goes on after iteration 12 of 20"));
  CHECK_THAT(second.output, !Contains("a run that resumes"));
}

TEST_CASE("CONTINUE: a run goes on without a worker that was killed, until it is back") {
  ResumeRun run("worker_loss: CONTINUE replicas: 1");
  Program launch(
      run.Launch({"--set=training.iterations=2000", "--set=compute.emulated.device=rtx_2080_ti",
                  "--set=compute.emulated.time_dilation=60000"}));
  launch.WaitFor("[worker 1] ");
  launch.WaitFor("complete");  // a checkpoint: the training has begun
  const std::vector<pid_t> worker = FindProcesses({"--rank=1", run.config});
  REQUIRE(worker.size() == 1);
  REQUIRE(kill(worker[0], SIGKILL) == 0);
  const int code = launch.Wait();
  INFO(launch.output());
  CHECK(code == 0);
  CHECK_THAT(
      launch.output(),
      Contains("worker 1 was killed by SIGKILL; the run goes on with 1 worker from iteration") &&
          Contains("worker 1 is back; the run goes on with 2 workers from iteration") &&
          Contains("it survived 1 death: worker 1 (1x)"));
}

}  // namespace evenshard
