#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

// A run with recovery of 2 shards, a spare and 2 workers by launch, with scripts in place of the
// programs. They do not follow the views.
class RecoveryRun {
 public:
  // The scripts know their number as $index, and how often they were started, this time included,
  // as $start.
  std::string ps = "await_term";
  std::string worker = "await_ready";
  std::string recovery = "replicas: 1 worker_loss: WAIT";
  std::vector<std::string> flags;

  const ScratchFolder folder;

  int Run() { return Start().Wait(); }

  Program& Start() {
    const std::string config =
        folder.Write("config", absl::StrCat(R"pb(
                                              model { builtin: "mnist_mlp" }
                                              partition { scheme: MEMORY_BASED }
                                              shard { address: "127.0.0.1:0" }
                                              shard { address: "127.0.0.1:0" }
                                              workers: 2
                                              update { policy: SYNC }
                                              training { iterations: 1 }
                                              compute { backend: EMULATED })pb",
                                            "\nrecovery {\n", recovery,
                                            "\nspare { address: \"127.0.0.1:0\" } }\n"));
    std::vector<std::string> command = {"tools/launch/launch", "--config=" + config,
                                        Script("ps", ps), Script("worker", worker)};
    command.insert(command.end(), flags.begin(), flags.end());
    return program_.emplace(command);
  }

  const std::string& output() const { return program_->output(); }
  bool Says(const std::string& text) const { return absl::StrContains(output(), text); }

 private:
  std::string Script(const std::string& name, const std::string& body) {
    const std::string path = folder.Write(name, absl::StrCat(R"sh(#!/bin/bash
for argument; do
  case $argument in
    --shard=*|--rank=*) index=${argument#*=};;
    --coordinator=*) coordinator=${argument#*=};;
    --set=*) echo "$argument";;
  esac
done
cd "${0%/*}"
echo >>"${0##*/}$index.starts"
start=$(wc -l <"${0##*/}$index.starts")
await_term() { trap 'exit 0' TERM; touch "${0##*/}$index.ready"; while :; do sleep infinity & wait; done; }
await_ready() { for i in 0 1 2; do until [[ -e ps$i.ready ]]; do sleep 0.01; done; done; }
await_start() { until [[ -e $1.starts && $(wc -l <"$1.starts") -ge $2 ]]; do sleep 0.01; done; }
)sh",
                                                             body, "\n"));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return absl::StrCat("--", name, "=", path);
  }

  std::optional<Program> program_;
};

}  // namespace

TEST_CASE("processes that die are started again, and the last line says what the run survived") {
  RecoveryRun run;
  run.ps = R"sh([[ $index = 1 && $start = 1 ]] && { await_start worker1 1; kill -KILL $$; }
echo "start $start of $index"; await_term)sh";
  run.worker = R"sh([[ $index = 1 && $start -lt 3 ]] && { await_start ps1 1; exit 3; }
await_start ps1 2; await_ready; echo done)sh";
  CHECK(run.Run() == 0);
  INFO(run.output());
  CHECK(run.Says("[launch] ps 1 was killed by SIGKILL; starting it again\n"));
  CHECK(run.Says("[ps 1] start 2 of 1\n"));
  CHECK(run.Says("[launch] worker 1 failed with exit code 3; starting it again\n"));
  CHECK(run.Says("[worker 1] done\n"));
  CHECK(
      run.output().ends_with("[launch] the run succeeded; it survived 3 deaths: ps 1 (1x), "
                             "worker 1 (2x)\n"));
}

TEST_CASE("ps and workers know the coordinator, and spares are started with ports of their own") {
  RecoveryRun run;
  run.ps = "echo \"$index at $coordinator\"; await_term";
  run.worker = "await_ready; echo \"at $coordinator\"";
  CHECK(run.Run() == 0);
  INFO(run.output());
  CHECK(run.Says("[ps 2] 2 at unix:/"));
  CHECK(run.Says("[ps 2] --set=recovery.spare[0].address=127.0.0.1:"));
  CHECK(run.Says("[worker 1] at unix:/"));
  CHECK(run.output().ends_with("[launch] the run succeeded\n"));
}

TEST_CASE("a process that fails again and again ends the run") {
  RecoveryRun run;
  run.worker = "exit 3";
  CHECK(run.Run() == 3);
  INFO(run.output());
  CHECK(run.Says("[launch] the run failed: worker "));
  CHECK(run.Says("failed with exit code 3, as did each of its last 5 starts within 10s\n"));
}

TEST_CASE("a program that cannot be started again at once is tried again") {
  RecoveryRun run;
  run.worker =
      R"sh([[ $index = 1 && $start = 1 ]] && { await_start worker0 1; mv worker away; exit 3; }
await_start worker1 2; await_ready)sh";
  Program& launch = run.Start();
  launch.WaitFor("worker: No such file or directory; trying again\n");
  SECTION("and the run goes on") {
    std::filesystem::rename(run.folder.Path("away"), run.folder.Path("worker"));
    CHECK(launch.Wait() == 0);
    CHECK(
        run.output().ends_with("[launch] the run succeeded; it survived 1 death: worker 1 (1x)\n"));
  }
  SECTION("until it has failed often") {
    CHECK(launch.Wait() == 1);
    INFO(run.output());
    CHECK(run.Says("[launch] worker 1: cannot start "));
    CHECK(run.Says("No such file or directory; ending the others\n"));
    CHECK(run.Says("[launch] the run failed: worker 1: cannot start "));
  }
}

TEST_CASE("wrong usage or a wrong config is not tried again") {
  RecoveryRun run;
  run.ps = "[[ $index = 2 ]] && exit 2; await_term";
  run.worker = "await_term";
  CHECK(run.Run() == 2);
  CHECK(run.output().ends_with("[launch] the run failed: ps 2 failed with exit code 2\n"));
}

TEST_CASE("with worker_loss FAIL a dead worker ends the run, while a ps is started again") {
  RecoveryRun run;
  run.recovery = "replicas: 1";
  run.ps = "[[ $index = 0 && $start = 1 ]] && { await_start worker1 1; exit 0; }; await_term";
  run.worker = "[[ $index = 0 ]] && { await_start ps0 2; kill -KILL $$; }; await_term";
  CHECK(run.Run() == 137);
  INFO(run.output());
  CHECK(run.Says("[launch] ps 0 ended before the workers were done; starting it again\n"));
  CHECK(run.output().ends_with("[launch] the run failed: worker 0 was killed by SIGKILL\n"));
}

TEST_CASE("without copies and checkpoints a dead ps ends the run") {
  RecoveryRun run;
  run.recovery = "worker_loss: WAIT";
  run.ps = "[[ $index = 0 ]] && { await_start worker1 1; kill -KILL $$; }; await_term";
  run.worker = "await_term";
  CHECK(run.Run() == 137);
  CHECK(run.output().ends_with("[launch] the run failed: ps 0 was killed by SIGKILL\n"));
}

TEST_CASE("a signal ends a run whose processes keep dying, and nothing is left of it") {
  RecoveryRun run;
  run.ps = R"sh(echo "pid $$"; [[ $index = 2 && $start -lt 3 ]] && exit 1; await_term)sh";
  run.worker = R"sh(echo "pid $$"; [[ $index = 0 ]] && { await_start ps2 2; kill -TERM $PPID; }
await_term)sh";
  CHECK(run.Run() == 143);
  INFO(run.output());
  CHECK(run.output().ends_with("[launch] the run was ended by SIGTERM\n"));
  static const std::regex kPid("\\] pid (\\d+)\n");
  for (std::sregex_iterator match(run.output().begin(), run.output().end(), kPid), end;
       match != end; ++match) {
    CHECK(kill(std::stoi((*match)[1]), 0) != 0);
  }
}

TEST_CASE("a run needs a folder without checkpoints, or --resume and one with") {
  RecoveryRun run;
  std::filesystem::create_directories(run.folder.Path("checkpoints"));
  run.recovery =
      "replicas: 1 worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_seconds: 9 }";
  SECTION("none, and --resume") {
    run.flags = {"--resume"};
    CHECK(run.Run() == 2);
    CHECK(run.Says("which has no complete checkpoint to resume from"));
  }
  SECTION("some, and no --resume") {
    const std::string checkpoint = "checkpoints/generation-0001-iteration-0000000120";
    std::filesystem::create_directories(run.folder.Path(checkpoint));
    run.folder.Write(checkpoint + "/manifest.json", "not what it was");
    CHECK(run.Run() == 2);
    CHECK(
        run.Says("which has checkpoints of an earlier run (generation-0001-iteration-0000000120)"
                 ", allowed: --resume"));
  }
  SECTION("--resume without the setting") {
    run.recovery = "replicas: 1";
    run.flags = {"--resume"};
    CHECK(run.Run() == 2);
    CHECK(run.Says("--resume: needs recovery.checkpoint in the config"));
  }
  SECTION("none") {
    CHECK(run.Run() == 0);
    CHECK(std::filesystem::exists(run.folder.Path("checkpoints/LOCK")));
  }
}

TEST_CASE("launch starts no run whose views are in etcd") {
  RecoveryRun run;
  run.recovery = "replicas: 1 etcd { endpoint: \"127.0.0.1:2379\" }";
  CHECK(run.Run() == 2);
  INFO(run.output());
  CHECK(run.Says("recovery.etcd: is for a run on several machines"));
  CHECK(run.Says("allowed here: no recovery.etcd"));
  CHECK_FALSE(std::filesystem::exists(run.folder.Path("ps0.starts")));
}

}  // namespace evenshard
