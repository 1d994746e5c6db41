// The real programs as users start them: ps, worker, launch and psctl.

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;
using Catch::EndsWith;

// Two shards on unix sockets in `folder`, so that tests never meet on a port.
std::vector<std::string> Sockets(const ScratchFolder& folder) {
  return {"--set", absl::StrCat("shard[0].address=unix:", folder.Path("0.sock")), "--set",
          absl::StrCat("shard[1].address=unix:", folder.Path("1.sock"))};
}

std::vector<std::string> Command(std::vector<std::string> command,
                                 const std::vector<std::string>& more) {
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

// A run that goes on until it is ended: two workers, a tiny model, no arithmetic.
std::string EndlessConfig(const ScratchFolder& folder, const std::string& policy = "SYNC") {
  return folder.Write("endless.textproto", absl::StrCat(R"(
    model { builtin: "mnist_mlp" }
    partition { scheme: MEMORY_BASED }
    shard { address: "unix:)",
                                                        folder.Path("0.sock"), R"(" }
    shard { address: "unix:)",
                                                        folder.Path("1.sock"), R"(" }
    workers: 2
    update { policy: )",
                                                        policy, R"( }
    training { iterations: 1000000000 }
    compute { backend: EMULATED }
    limits { shutdown_seconds: 5 }
  )"));
}

// Whether a process blocks SIGTERM, so that it has come to wait for it. A process that blocks all
// signals does not count: libraries do that for a moment, as when they start a thread.
bool BlocksSigterm(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("SigBlk:", 0) != 0) continue;
    const unsigned long long blocked = std::stoull(line.substr(7), nullptr, 16);
    const auto blocks = [&](int signal) { return (blocked >> (signal - 1) & 1) != 0; };
    return blocks(SIGTERM) && !blocks(SIGWINCH);
  }
  return false;
}

// Kills the one process of a run that has `flag` in its command line.
void Kill(const ScratchFolder& folder, const std::string& flag) {
  const std::vector<pid_t> pids = FindProcesses({flag, "--config=" + folder.Path("")});
  REQUIRE(pids.size() == 1);
  REQUIRE(kill(pids[0], SIGKILL) == 0);
}

}  // namespace

TEST_CASE("launch trains the digits to 95 % with SYNC, with ASYNC and with a residual network") {
  for (const std::string config : {"digits_sync", "digits_async", "digits_resnet"}) {
    CAPTURE(config);
    const ScratchFolder folder;
    Program launch(Command(
        {"tools/launch/launch", absl::StrCat("--config=configs/", config, ".textproto"), "--set",
         "training.epochs=12", "--save=" + folder.Path("model"), "--stats=" + folder.Path("stats"),
         "--summary=" + folder.Path("summary"), "--trace=" + folder.Path("trace")},
        Sockets(folder)));
    const int exit_code = launch.Wait();
    INFO(launch.output());
    CHECK(exit_code == 0);
    std::smatch match;
    const std::string summary = folder.Read("summary");
    REQUIRE(std::regex_search(summary, match, std::regex("\"final_accuracy\":([0-9.]+)")));
    CHECK(std::stod(match[1]) >= 0.95);
    CHECK_THAT(folder.Read("model"), Contains("conv1/weight"));
    CHECK_THAT(folder.Read("stats"), Contains("\"updates\""));
    CHECK_THAT(folder.Read("trace"), Contains("\"name\":\"pull conv1\"") && EndsWith("]\n"));
    if (config == "digits_resnet") CHECK_THAT(folder.Read("model"), Contains("bn1/running_var"));
  }
}

TEST_CASE("half-width exchanges train the digits to 95 % too") {
  for (const std::string encoding : {"FLOAT16", "BFLOAT16"}) {
    for (const std::string config : {"digits_sync", "digits_async"}) {
      CAPTURE(encoding, config);
      const ScratchFolder folder;
      Program launch(
          Command({"tools/launch/launch", absl::StrCat("--config=configs/", config, ".textproto"),
                   "--set", "training.epochs=12", "--set", "exchange.gradient_encoding=" + encoding,
                   "--set", "exchange.parameter_encoding=" + encoding},
                  Sockets(folder)));
      const int exit_code = launch.Wait();
      INFO(launch.output());
      CHECK(exit_code == 0);  // the configs require 95 %
    }
  }
}

TEST_CASE("launch saves a model that misses the accuracy, and fails") {
  const ScratchFolder folder;
  Program launch(Command({"tools/launch/launch", "--config=configs/digits_sync.textproto", "--set",
                          "training.epochs=1", "--set", "training.required_accuracy=0.9999",
                          "--save=" + folder.Path("model"), "--stats=" + folder.Path("stats")},
                         Sockets(folder)));
  CHECK(launch.Wait() == 1);
  INFO(launch.output());
  CHECK_THAT(launch.output(), Contains("below training.required_accuracy") &&
                                  Contains("[save] saved custom, 13,706 parameters") &&
                                  !Contains("which did not end"));
  CHECK_THAT(folder.Read("model"), Contains("fc2/weight"));
  CHECK_THAT(folder.Read("stats"), Contains("below training.required_accuracy"));
}

TEST_CASE("launch saves what the shards have when a worker is killed") {
  const ScratchFolder folder;
  const std::string policy = GENERATE("SYNC", "ASYNC");
  Program launch({"tools/launch/launch", "--config=" + EndlessConfig(folder, policy),
                  "--save=" + folder.Path("model")});
  launch.WaitFor("iteration ");
  Kill(folder, "--rank=1");
  CHECK(launch.Wait() != 0);
  INFO(launch.output());
  CHECK_THAT(launch.output(), Contains("worker 1") && Contains("[save] saved"));
  CHECK_THAT(folder.Read("model"), Contains("__metadata__"));
  CHECK(FindProcesses({"--config=" + folder.Path("")}).empty());
}

TEST_CASE("launch saves what the shards have when a signal ends it") {
  const ScratchFolder folder;
  const std::string policy = GENERATE("SYNC", "ASYNC");
  Program launch({"tools/launch/launch", "--config=" + EndlessConfig(folder, policy),
                  "--save=" + folder.Path("model"), "--stats=" + folder.Path("stats")});
  launch.WaitFor("iteration ");
  REQUIRE(kill(launch.pid(), SIGINT) == 0);
  CHECK(launch.Wait() == 128 + SIGINT);
  INFO(launch.output());
  CHECK_THAT(launch.output(), Contains("[launch] the statistics are in " + folder.Path("stats")) &&
                                  Contains("[launch] the model is in " + folder.Path("model")) &&
                                  !Contains("which did not end"));
  CHECK_THAT(folder.Read("model"), Contains("__metadata__"));
  CHECK_THAT(folder.Read("stats"), Contains("\"updates\""));
  CHECK(FindProcesses({"--config=" + folder.Path("")}).empty());
}

TEST_CASE("a run that skips nearly every update fails, and its last lines say why") {
  const ScratchFolder folder;
  Program launch(
      Command({"tools/launch/launch", "--config=configs/digits_sync.textproto", "--set",
               "training={batch_size: 16 iterations: 20}", "--set",
               "optimizer={kind: SGD learning_rate: 1e30}", "--set", "update.non_finite=SKIP"},
              Sockets(folder)));
  CHECK(launch.Wait() == 1);
  INFO(launch.output());
  CHECK_THAT(launch.output(),
             Contains("the training has diverged: 19 of 20 gradients") &&
                 Contains("pushes brought no gradient (`skip`): it was not finite"));
}

TEST_CASE("when a shard is killed, launch ends all others and names it") {
  const ScratchFolder folder;
  Program launch({"tools/launch/launch", "--config=" + EndlessConfig(folder)});
  launch.WaitFor("iteration ");
  Kill(folder, "--shard=1");
  CHECK(launch.Wait() == 128 + SIGKILL);
  CHECK_THAT(launch.output(), Contains("[launch] ps 1 was killed by SIGKILL; ending the others"));
  // All ended within limits.shutdown_seconds, after which launch kills, and says so.
  CHECK_THAT(launch.output(), !Contains("which did not end"));
  CHECK(FindProcesses({"--config=" + folder.Path("")}).empty());
}

TEST_CASE("when a shard is killed, workers end and name it") {
  const ScratchFolder folder;
  const std::string config = EndlessConfig(folder);
  Program shard0({"server/ps", "--shard=0", "--config=" + config});
  std::vector<std::unique_ptr<Program>> workers;
  {
    Program shard1({"server/ps", "--shard=1", "--config=" + config});
    for (const char* rank : {"--rank=0", "--rank=1"}) {
      workers.push_back(std::make_unique<Program>(
          std::vector<std::string>{"worker/worker", rank, "--config=" + config}));
    }
    for (const auto& worker : workers) worker->WaitFor("iteration ");
  }  // killed
  for (const auto& worker : workers) {
    CHECK(worker->Wait() == 1);
    CHECK_THAT(worker->output(), Contains("shard 1 (unix:" + folder.Path("1.sock") + ")"));
  }
}

TEST_CASE("when a worker is killed under SYNC, the other ends and names it") {
  const ScratchFolder folder;
  const std::string config = EndlessConfig(folder);
  Program shard0({"server/ps", "--shard=0", "--config=" + config});
  Program shard1({"server/ps", "--shard=1", "--config=" + config});
  Program worker0({"worker/worker", "--rank=0", "--config=" + config});
  {
    Program worker1({"worker/worker", "--rank=1", "--config=" + config});
    worker1.WaitFor("iteration ");
  }  // killed
  CHECK(worker0.Wait() == 1);
  CHECK_THAT(worker0.output(), Contains("worker 1 (") && Contains("its connection ended"));
}

TEST_CASE("when a worker is killed, launch ends all others and names it") {
  const ScratchFolder folder;
  Program launch({"tools/launch/launch", "--config=" + EndlessConfig(folder)});
  launch.WaitFor("iteration ");
  Kill(folder, "--rank=1");
  // Whichever of the two is noticed first: the kill, or what it did to the others.
  CHECK(launch.Wait() != 0);
  CHECK_THAT(launch.output(), Contains("worker 1") && !Contains("which did not end"));
  CHECK(FindProcesses({"--config=" + folder.Path("")}).empty());
}

TEST_CASE("under ASYNC the others go on when a worker is killed, and it may come back") {
  const ScratchFolder folder;
  const std::string config = EndlessConfig(folder, "ASYNC");
  Program shard0({"server/ps", "--shard=0", "--config=" + config});
  Program shard1({"server/ps", "--shard=1", "--config=" + config});
  Program worker0({"worker/worker", "--rank=0", "--config=" + config});
  {
    Program worker1({"worker/worker", "--rank=1", "--config=" + config});
    worker1.WaitFor("iteration ");
  }  // killed
  Program again({"worker/worker", "--rank=1", "--config=" + config});
  again.WaitFor("iteration ");
  worker0.WaitFor("iteration ");
  Program stats({"tools/psctl/psctl", "stats", "--config=" + config, "--format=json"});
  CHECK(stats.Wait() == 0);
  CHECK_THAT(stats.output(), !Contains("LOST") && Contains("JOINED"));
}

TEST_CASE("a worker ended by SIGTERM leaves, and the others learn why") {
  const ScratchFolder folder;
  const std::string config = EndlessConfig(folder);
  Program shard0({"server/ps", "--shard=0", "--config=" + config});
  Program shard1({"server/ps", "--shard=1", "--config=" + config});
  Program worker0({"worker/worker", "--rank=0", "--config=" + config});
  Program worker1({"worker/worker", "--rank=1", "--config=" + config});
  worker1.WaitFor("iteration ");
  kill(worker1.pid(), SIGTERM);
  CHECK(worker1.Wait() == 1);
  CHECK_THAT(worker1.output(), Contains("stopped by Terminated"));
  CHECK(worker0.Wait() == 1);
  CHECK_THAT(worker0.output(), Contains("worker 1 gave up: stopped by Terminated"));

  // The shards keep the parameters and say what happened.
  Program stats({"tools/psctl/psctl", "stats", "--config=" + config});
  stats.Wait();
  CHECK_THAT(stats.output(), Contains("worker 1 gave up: stopped by Terminated"));
  Program save(
      {"tools/psctl/psctl", "save", "--config=" + config, "--out=" + folder.Path("model")});
  CHECK(save.Wait() == 0);
  Program shutdown({"tools/psctl/psctl", "shutdown", "--config=" + config});
  CHECK(shutdown.Wait() == 0);
  CHECK(shard0.Wait() == 1);
  CHECK(shard1.Wait() == 1);
  CHECK_THAT(shard0.output(), Contains("pushes (") && Contains("the run FAILED: ") &&
                                  Contains("worker 1 gave up: stopped by Terminated"));
}

TEST_CASE("a shard ends cleanly on SIGTERM and SIGINT, with a summary") {
  for (const int signal : {SIGTERM, SIGINT}) {
    const ScratchFolder folder;
    Program shard({"server/ps", "--shard=0", "--config=" + EndlessConfig(folder)});
    shard.WaitFor("Evenshard ps 0 is listening on ");
    kill(shard.pid(), signal);
    CHECK(shard.Wait() == 0);
    CHECK_THAT(shard.output(), Contains("0 pushes (0 repeated, 0 skipped)"));
  }
}

TEST_CASE("a worker ends on SIGTERM while it still opens its data") {
  const ScratchFolder folder;
  const std::string pipe = folder.Path("pipe");  // opening it blocks
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Program worker({"worker/worker", "--rank=0", "--config=configs/digits_sync.textproto", "--set",
                  "data.idx.images=" + pipe});
  // Signals are blocked before anything else is done, so none is lost or kills it.
  while (!BlocksSigterm(worker.pid())) absl::SleepFor(absl::Milliseconds(1));
  kill(worker.pid(), SIGTERM);
  CHECK(worker.Wait() == 1);
  CHECK_THAT(worker.output(), Contains("stopped by Terminated"));
}

TEST_CASE("a finished run can be evaluated again by a restarted worker") {
  const ScratchFolder folder;
  std::vector<std::string> sets = Sockets(folder);
  for (const char* set : {"workers=1", "training.batch_size=32", "training.epochs=12"}) {
    sets.push_back("--set");
    sets.push_back(set);
  }
  const std::string config = "--config=configs/digits_sync.textproto";
  Program shard0(Command({"server/ps", "--shard=0", config}, sets));
  Program shard1(Command({"server/ps", "--shard=1", config}, sets));
  for (int start = 0; start < 2; ++start) {
    Program worker(Command({"worker/worker", "--rank=0", config}, sets));
    CHECK(worker.Wait() == 0);
    CHECK_THAT(worker.output(), Contains("accuracy 9"));
    if (start == 1) CHECK_THAT(worker.output(), Contains("goes on after iteration"));
  }
}

TEST_CASE("wrong command lines and configs are refused with exit code 2") {
  const ScratchFolder folder;
  const std::string config = EndlessConfig(folder);
  const auto output_of = [](const std::vector<std::string>& command) {
    Program program(command);
    CHECK(program.Wait() == 2);
    return program.output();
  };
  CHECK_THAT(output_of({"server/ps", "--config=" + config}), Contains("--shard"));
  CHECK_THAT(output_of({"worker/worker", "--config=/nowhere", "--rank=0"}), Contains("/nowhere"));
  CHECK_THAT(output_of({"server/ps", "--config=" + config, "--shard=0", "--set", "workers=0"}),
             Contains("--set workers=0: workers: is 0, allowed: 1 to 1024"));
  CHECK_THAT(output_of({"tools/launch/launch", "--config=" + config, "--set", "worker=2"}),
             Contains("worker"));
  const std::vector<std::vector<std::string>> programs = {{"server/ps", "--shard=0"},
                                                          {"worker/worker", "--rank=0"},
                                                          {"tools/psctl/psctl", "stats"},
                                                          {"tools/launch/launch"}};
  for (const std::vector<std::string>& program : programs) {
    CHECK_THAT(output_of(Command(program, {"--config=" + config, "--log_level=loud"})),
               Contains("--log_level: is \"loud\", allowed: trace, debug, info, warning, error, "
                        "critical, off"));
  }
}

TEST_CASE("a rank or shard that the config does not have is refused with exit code 2") {
  const ScratchFolder folder;
  const std::string config = EndlessConfig(folder);
  Program shard({"server/ps", "--config=" + config, "--shard=2"});
  CHECK(shard.Wait() == 2);
  CHECK_THAT(shard.output(), Contains("there is no shard 2: the config has 2 shards, 0 to 1"));
  Program worker({"worker/worker", "--config=" + config, "--rank=5"});
  CHECK(worker.Wait() == 2);
  CHECK_THAT(worker.output(), Contains("there is no worker 5: the config has 2 workers"));
}

TEST_CASE("a worker whose data is not there is refused with exit code 2, as launch refuses it") {
  Program worker({"worker/worker", "--rank=0", "--config=configs/digits_sync.textproto", "--set",
                  "data.idx.images=/nowhere/images"});
  CHECK(worker.Wait() == 2);
  CHECK_THAT(worker.output(), Contains("--set data.idx.images=/nowhere/images: data.idx.images: "));
}

TEST_CASE(
    "a worker that cannot write its trace or summary to a full disk trains on, then fails with the "
    "reason") {
  const ScratchFolder folder;
  std::vector<std::string> sets = Sockets(folder);
  for (const char* set : {"workers=1", "training.epochs=1", "training.required_accuracy=0"}) {
    sets.push_back("--set");
    sets.push_back(set);
  }
  const std::string config = "--config=configs/digits_sync.textproto";
  Program shard0(Command({"server/ps", "--shard=0", config}, sets));
  Program shard1(Command({"server/ps", "--shard=1", config}, sets));
  const std::string flag = GENERATE("--trace", "--summary");
  Program worker(Command({"worker/worker", "--rank=0", config, flag + "=/dev/full"}, sets));
  CHECK(worker.Wait() == 1);
  INFO(worker.output());
  CHECK_THAT(worker.output(), Contains("done: ") && Contains(flag) && Contains("/dev/full") &&
                                  Contains("No space left on device"));
}

TEST_CASE("a worker says whether it evaluates on held-out or on test images") {
  const auto [sets, words] = GENERATE(table<std::vector<std::string>, std::string>(
      {{{"--set=data.holdout=0.5"}, "held-out images"},
       {{"--set=data.holdout=0", "--set=data.idx.test_images=../data/digits/images.idx3-ubyte.gz",
         "--set=data.idx.test_labels=../data/digits/labels.idx1-ubyte.gz"},
        "test images"}}));
  const ScratchFolder folder;
  Program launch(Command(Command({"tools/launch/launch", "--config=configs/digits_sync.textproto",
                                  "--set=training.epochs=1", "--set=training.required_accuracy=0"},
                                 sets),
                         Sockets(folder)));
  CHECK(launch.Wait() == 0);
  INFO(launch.output());
  CHECK_THAT(launch.output(), Contains(words));
}

TEST_CASE("--log_level sets the lowest level that is logged, and launch passes it on") {
  const ScratchFolder folder;
  std::vector<std::string> command = {"tools/launch/launch", "--config=" + EndlessConfig(folder),
                                      "--set=training.iterations=3",
                                      "--stats=" + folder.Path("stats")};
  const auto output_at = [&](const std::string& level) {
    std::vector<std::string> with_level = command;
    if (!level.empty()) with_level.push_back("--log_level=" + level);
    Program launch(with_level);
    CHECK(launch.Wait() == 0);
    return launch.output();
  };
  const std::string by_default = output_at("");
  CHECK_THAT(by_default, Contains("Evenshard ps 0 is listening on ") &&
                             Contains("Evenshard worker 1: trains ") &&
                             Contains("done: 3 iterations") && !Contains("gRPC: "));
  CHECK_THAT(output_at("warning"), !Contains("listening on") && !Contains("done: "));
  const std::string all = output_at("trace");
  CHECK_THAT(all, Contains("listening on") && Contains("done: 3 iterations"));
  for (const std::string process : {"ps 0", "worker 1", "stats"}) {
    CAPTURE(process);
    const auto logs_grpc = [&](const std::string& line) {
      return line.rfind("[" + process + "]", 0) == 0 && line.find("trace gRPC: ") != line.npos;
    };
    const std::vector<std::string> lines = absl::StrSplit(all, '\n');
    CHECK(std::any_of(lines.begin(), lines.end(), logs_grpc));
  }
}

}  // namespace evenshard
