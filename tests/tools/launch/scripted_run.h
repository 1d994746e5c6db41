#ifndef EVENSHARD_TESTS_TOOLS_LAUNCH_SCRIPTED_RUN_H_
#define EVENSHARD_TESTS_TOOLS_LAUNCH_SCRIPTED_RUN_H_

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
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

// A run of 2 shards and 3 workers by launch, with scripts in place of the programs.
class ScriptedRun {
 public:
  // The scripts know their number as $index. A shard runs until SIGTERM or SIGINT; no
  // worker ends before the shards know what to do then.
  std::string ps = "await_signal";
  std::string worker = "await_shards";
  std::string psctl = "exit 0";
  std::string config = "limits { shutdown_seconds: 30 }";
  std::string worker_flag;  // in place of the worker's script
  std::vector<std::string> flags;
  std::vector<std::string> starter;  // in front of launch's command line, such as nohup

  const ScratchFolder folder;

  // Starts launch. The scripts begin with a line "pid N".
  Program& Start(int terminal_columns = 0) {
    const std::string config_file =
        folder.Write("config", absl::StrCat(R"pb(
                                              model { builtin: "mnist_mlp" }
                                              partition { scheme: MEMORY_BASED }
                                              shard { address: "127.0.0.1:0" }
                                              shard { address: "127.0.0.1:0" }
                                              workers: 3
                                              update { policy: SYNC }
                                              training { iterations: 1 }
                                              compute { backend: EMULATED })pb",
                                            "\n", config));
    std::vector<std::string> command = starter;
    command.insert(command.end(), {"tools/launch/launch", "--config=" + config_file,
                                   Script("ps", ps), Script("psctl", psctl),
                                   worker_flag.empty() ? Script("worker", worker) : worker_flag});
    command.insert(command.end(), flags.begin(), flags.end());
    return program_.emplace(command, terminal_columns);
  }

  // The processes that have told their numbers so far.
  std::vector<pid_t> Pids() const {
    std::vector<pid_t> pids;
    static const std::regex kPid("\\] pid (\\d+)\n");
    const std::string& output = program_->output();
    for (std::sregex_iterator match(output.begin(), output.end(), kPid), end; match != end;
         ++match) {
      pids.push_back(std::stoi((*match)[1]));
    }
    return pids;
  }

  // Whether all of them are gone, and reaped.
  bool AllGone() const {
    for (const pid_t pid : Pids()) {
      if (kill(pid, 0) == 0 || errno != ESRCH) return false;
    }
    return true;
  }

  // Waits until all five have started.
  void AwaitAll() {
    for (const char* label : {"ps 0", "ps 1", "worker 0", "worker 1", "worker 2"}) {
      program_->WaitFor(absl::StrCat("[", label, "] pid "));
      program_->WaitFor(absl::StrCat("[", label, "] ready\n"));
    }
  }

 private:
  std::string Script(const std::string& name, const std::string& body) {
    const std::string path = folder.Write(name, absl::StrCat(R"sh(#!/bin/bash
for argument; do case $argument in --shard=*|--rank=*) index=${argument#*=};; esac; done
cd "${0%/*}"
ready() { echo $$ >"${0##*/}$index.ready"; echo ready; }
await_shards() { until [[ -s ps0.ready && -s ps1.ready ]]; do sleep 0.01; done; }
sleep_on() { while :; do sleep infinity & wait; done; }
await_signal() {
  trap 'echo got TERM; exit 0' TERM
  trap 'echo got INT; exit 0' INT
  ready
  sleep_on
}
echo "pid $$"
)sh",
                                                             body, "\n"));
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return absl::StrCat("--", name, "=", path);
  }

  std::optional<Program> program_;
};

inline bool Contains(const Program& program, const std::string& text) {
  return absl::StrContains(program.output(), text);
}

// Waits for the end of a process that is no child of launch any more.
inline bool Ends(pid_t pid) {
  constexpr int kPatienceMilliseconds = 60000;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return errno == ESRCH;
  pollfd poll_fd = {fd, POLLIN, 0};
  const int ended = poll(&poll_fd, 1, kPatienceMilliseconds);
  close(fd);
  return ended == 1;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TOOLS_LAUNCH_SCRIPTED_RUN_H_
