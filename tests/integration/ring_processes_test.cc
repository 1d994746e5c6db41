// Rings of the real programs: worker, launch and psctl.

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/integration/ring_launch.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;

std::unique_ptr<Program> StartWorker(const ScratchFolder& folder, int workers, int rank,
                                     const std::vector<std::string>& more = {}) {
  std::vector<std::string> command = {"worker/worker", absl::StrCat("--config=", kRingConfigFile),
                                      absl::StrCat("--rank=", rank)};
  for (const std::string& each : RingOverrides(folder, workers, more)) command.push_back(each);
  return std::make_unique<Program>(command);
}

std::vector<std::unique_ptr<Program>> StartWorkers(const ScratchFolder& folder, int workers,
                                                   const std::vector<std::string>& more = {}) {
  std::vector<std::unique_ptr<Program>> started;
  for (int rank = 0; rank < workers; ++rank) {
    started.push_back(StartWorker(folder, workers, rank, more));
  }
  return started;
}

TEST_CASE("launch trains a ring, which saves equal models in equal runs") {
  std::vector<std::string> saved;
  for (const char* name : {"first", "second"}) {
    const ScratchFolder folder;
    // Without a name of its own, two tests at the same time could have the same.
    const std::string run = std::filesystem::path(folder.Path(name)).parent_path().filename();
    Program launch(LaunchRing(folder, 3,
                              {absl::StrCat("--save=", folder.Path(name)), "--name=" + run},
                              {"training.epochs=12", "training.required_accuracy=0.9"}));
    const int code = launch.Wait();
    INFO(launch.output());
    REQUIRE(code == 0);
    CHECK_THAT(launch.output(), Contains("trains custom in a ring of 3 workers"));
    saved.push_back(folder.Read(name));
  }
  CHECK(!saved[0].empty());
  CHECK(saved[0] == saved[1]);
}

TEST_CASE("a worker of a ring may be started late, and its neighbours wait") {
  const ScratchFolder folder;
  const std::vector<std::string> short_run = {"training.epochs=1", "training.required_accuracy=0"};
  const auto first = StartWorker(folder, 3, 0, short_run);
  const auto last = StartWorker(folder, 3, 2, short_run);
  first->WaitFor("waiting for worker 1 (unix:");
  const auto late = StartWorker(folder, 3, 1, short_run);
  CHECK(late->Wait() == 0);
  CHECK(first->Wait() == 0);
  CHECK(last->Wait() == 0);
}

TEST_CASE("when a worker of a ring is killed, all others say which one and end") {
  const ScratchFolder folder;
  const auto workers = StartWorkers(folder, 4, {"training.epochs=100000"});
  workers[0]->WaitFor("epoch ");
  kill(workers[2]->pid(), SIGKILL);
  CHECK(workers[2]->Wait() == 128 + SIGKILL);
  for (const int rank : {0, 1, 3}) {
    CHECK(workers[rank]->Wait() == 1);
    INFO(workers[rank]->output());
    CHECK_THAT(workers[rank]->output(),
               Contains(absl::StrCat("worker 2 (unix:", folder.Path("2.sock"), ") was lost: ")));
    CHECK_THAT(workers[rank]->output(), Contains("(noticed by worker "));
  }
}

TEST_CASE("when a worker of a ring is told to stop, the others hear why") {
  const ScratchFolder folder;
  const auto workers = StartWorkers(folder, 3, {"training.epochs=100000"});
  workers[0]->WaitFor("epoch ");
  kill(workers[1]->pid(), SIGTERM);
  for (const auto& worker : workers) CHECK(worker->Wait() == 1);
  CHECK_THAT(workers[1]->output(), Contains("stopped by Terminated"));
  for (const int rank : {0, 2}) {
    CHECK_THAT(workers[rank]->output(), Contains("worker 1 has given up: stopped by Terminated"));
  }
}

TEST_CASE("a worker of a ring that hangs is named by the one that it passes on to") {
  const ScratchFolder folder;
  const auto workers =
      StartWorkers(folder, 4, {"training.epochs=100000", "limits.exchange_seconds=6"});
  workers[0]->WaitFor("epoch ");
  kill(workers[1]->pid(), SIGSTOP);
  for (const int rank : {0, 2, 3}) {
    CHECK(workers[rank]->Wait() == 1);
    INFO(workers[rank]->output());
    CHECK_THAT(
        workers[rank]->output(),
        Contains(absl::StrCat("(limits.exchange_seconds); worker 1 (unix:", folder.Path("1.sock"),
                              ") does not answer (noticed by worker 2)")));
  }
}

TEST_CASE("psctl stats asks the workers of a ring, and fails if one does not answer") {
  const ScratchFolder folder;
  const auto workers =
      StartWorkers(folder, 3, {"training.epochs=100000", "training.required_accuracy=0"});
  workers[0]->WaitFor("epoch ");
  const auto stats = [&](const std::string& format) {
    std::vector<std::string> command = {"tools/psctl/psctl", "stats", format,
                                        absl::StrCat("--config=", kRingConfigFile)};
    for (const std::string& each : RingOverrides(folder, 3)) command.push_back(each);
    return Program(command);
  };
  Program json = stats("--format=json");
  CHECK(json.Wait() == 0);
  INFO(json.output());
  const auto answers = nlohmann::json::parse(json.output(), nullptr, false)["workers"];
  REQUIRE(answers.size() == 3);
  for (const auto& answer : answers) {
    CHECK(answer["stats"]["iteration"] != "0");
    CHECK(answer["stats"]["member"] == std::vector<int>{0, 1, 2});
  }
  kill(workers[1]->pid(), SIGKILL);
  for (const auto& worker : workers) worker->Wait();
  Program table = stats("--format=table");
  CHECK(table.Wait() == 1);
  CHECK_THAT(table.output(), Contains("worker 2 (unix:") && Contains(") is unreachable: "));
}

TEST_CASE("programs that are about shards refuse a ring") {
  const ScratchFolder folder;
  const auto refusal_of = [&](std::vector<std::string> command) {
    command.push_back(absl::StrCat("--config=", kRingConfigFile));
    Program program(command);
    const int code = program.Wait();
    INFO(program.output());
    CHECK(code == 2);
    return program.output();
  };
  const std::string why = "topology: is RING, which has no shards: each worker has the whole model";
  CHECK_THAT(refusal_of({"server/ps", "--shard=0"}), Contains(why));
  CHECK_THAT(refusal_of({"tools/psctl/psctl", "save", "--out=" + folder.Path("x")}), Contains(why));
  CHECK_THAT(refusal_of({"tools/psctl/psctl", "shutdown"}), Contains(why));
  CHECK_THAT(refusal_of({"tools/launch/launch", "--stats=" + folder.Path("x")}), Contains(why));
}

TEST_CASE("psctl plan shows the buckets of a ring, and what each worker sends") {
  Program plan({"tools/psctl/psctl", "plan", absl::StrCat("--config=", kRingConfigFile),
                "--set=model={builtin: 'vgg16'}", "--set=compute.backend=EMULATED",
                "--set=training={iterations: 1}", "--set=data={}", "--gbps=10"});
  CHECK(plan.Wait() == 0);
  INFO(plan.output());
  CHECK_THAT(plan.output(), Contains("vgg16 in a ring of 4 workers\n138,357,544 parameters, "));
  CHECK_THAT(plan.output(), Contains("worker      part  sums out  parameters out\n"));
  CHECK_THAT(plan.output(), Contains("138.4 MB  415.1 MB        415.1 MB"));
  CHECK_THAT(plan.output(), Contains("busiest link   830.1 MB each way per iteration"));
  CHECK_THAT(plan.output(), Contains("predicted      "));
  Program two({"tools/psctl/psctl", "plan", absl::StrCat("--config=", kRingConfigFile),
               "--config=configs/digits_sync.textproto"});
  CHECK(two.Wait() == 2);
}

}  // namespace
}  // namespace evenshard
