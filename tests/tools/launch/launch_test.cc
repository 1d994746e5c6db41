// The ends of runs by launch, with scripts in place of the programs. Signals are in
// launch_signals_test.cc.

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/tools/launch/scripted_run.h"

namespace evenshard {
namespace {

// Somebody who listens on an address.
class Listener {
 public:
  explicit Listener(int family, const std::string& path = "")
      : fd_(socket(family, SOCK_STREAM, 0)) {
    sockaddr_storage storage = {};
    socklen_t size = sizeof(sockaddr_in);
    storage.ss_family = family;
    if (family == AF_UNIX) {
      path.copy(reinterpret_cast<sockaddr_un&>(storage).sun_path, path.size());
      size = sizeof(sockaddr_un);
    } else {
      reinterpret_cast<sockaddr_in&>(storage).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    REQUIRE(bind(fd_, reinterpret_cast<sockaddr*>(&storage), size) == 0);
    REQUIRE(listen(fd_, 1) == 0);
    REQUIRE(getsockname(fd_, reinterpret_cast<sockaddr*>(&storage), &size) == 0);
    address_ =
        family == AF_UNIX
            ? "unix:" + path
            : absl::StrCat("127.0.0.1:", ntohs(reinterpret_cast<sockaddr_in&>(storage).sin_port));
  }
  ~Listener() { close(fd_); }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

TEST_CASE("when all workers have succeeded, the shards are ended and the exit code is 0") {
  ScriptedRun run;
  Program& launch = run.Start();
  CHECK(launch.Wait() == 0);
  INFO(launch.output());
  CHECK(run.Pids().size() == 5);
  CHECK(run.AllGone());
  CHECK(absl::EndsWith(launch.output(), "\n[launch] the run succeeded\n"));
}

TEST_CASE("when a worker fails, all others are ended and its exit code is returned") {
  ScriptedRun run;
  run.worker = "[[ $index == 1 ]] || await_signal; exit 3";
  Program& launch = run.Start();
  CHECK(launch.Wait() == 3);
  INFO(launch.output());
  CHECK(Contains(launch, "[launch] worker 1 failed with exit code 3; ending the others\n"));
  CHECK(absl::EndsWith(launch.output(),
                       "[launch] the run failed: worker 1 failed with exit code 3\n"));
  CHECK(run.AllGone());
}

TEST_CASE("an output that cannot be written is said once, and the exit code is not 0") {
  ScriptedRun run;
  run.starter = {"/bin/sh", "-c", "exec \"$@\" >/dev/full", "sh"};
  int code = 1;
  SECTION("the run succeeds") {}
  SECTION("the run fails") {
    run.worker = "exit 3";
    code = 3;
  }
  Program& launch = run.Start();
  CHECK(launch.Wait() == code);
  CHECK(launch.output() == "cannot write to standard output: No space left on device\n");
}

TEST_CASE("a process killed by signal n gives the exit code 128 + n") {
  ScriptedRun run;
  run.worker = "[[ $index == 2 ]] || await_signal; kill -SEGV $$";
  Program& launch = run.Start();
  CHECK(launch.Wait() == 128 + SIGSEGV);
  INFO(launch.output());
  CHECK(Contains(launch, "[launch] worker 2 was killed by SIGSEGV; ending the others\n"));
  CHECK(run.AllGone());
}

TEST_CASE("a shard that ends before the workers fails the run, whatever its exit code") {
  ScriptedRun run;
  run.ps = "[[ $index == 1 ]] || await_signal; exit 0";
  run.worker = "await_signal";
  Program& launch = run.Start();
  CHECK(launch.Wait() == 1);
  INFO(launch.output());
  CHECK(Contains(launch, "[launch] ps 1 ended before the workers were done; ending the others\n"));
  CHECK(run.AllGone());
}

TEST_CASE("a shard that fails while it is shut down fails the run") {
  ScriptedRun run;
  run.ps = "trap 'exit 7' TERM; ready; sleep_on";
  Program& launch = run.Start();
  CHECK(launch.Wait() == 7);
  INFO(launch.output());
  CHECK(absl::EndsWith(launch.output(), " failed with exit code 7\n"));
  CHECK(Contains(launch, "[launch] the run failed: ps "));
  CHECK(run.AllGone());
}

TEST_CASE("a shard that is told to end before it takes signals has ended well") {
  ScriptedRun run;
  run.ps = "ready; sleep_on";  // killed by SIGTERM
  Program& launch = run.Start();
  CHECK(launch.Wait() == 0);
  INFO(launch.output());
  CHECK(absl::EndsWith(launch.output(), "[launch] the run succeeded\n"));
  CHECK(run.AllGone());
}

TEST_CASE("a process that does not end on SIGTERM is killed, with its children") {
  ScriptedRun run;
  run.config = "limits { shutdown_seconds: 0.01 }";
  run.ps = "trap '' TERM; sleep infinity & echo \"pid $!\"; ready; wait";
  run.worker = "await_shards; [[ $index == 0 ]] && exit 5; await_signal";
  Program& launch = run.Start();
  CHECK(launch.Wait() == 5);
  INFO(launch.output());
  CHECK(Contains(launch, "[launch] killing ps 0, which did not end\n"));
  for (const pid_t pid : run.Pids()) CHECK(Ends(pid));
}

TEST_CASE("two results with the same destination are refused, however the path is spelled") {
  ScriptedRun run;
  const std::string file = run.folder.Path("file");
  const std::string link = run.folder.Path("link");
  std::filesystem::create_symlink("file", link);
  std::filesystem::create_directory_symlink(".", run.folder.Path("here"));
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"--save=" + file, "--stats=" + file},
      {"--save=" + file, "--trace=" + link},
      {"--stats=" + run.folder.Path("./here/here//file"), "--summary=" + file},
      {"--summary=" + link, "--trace=" + run.folder.Path("here/./link")}};
  const auto& [first, second] = pairs[GENERATE(0, 1, 2, 3)];
  if (GENERATE(false, true)) run.folder.Write("file", "");
  run.flags = {first, second};
  Program& launch = run.Start();
  CHECK(launch.Wait() == 2);
  INFO(launch.output());
  CHECK(Contains(launch, "are the same file"));
  CHECK(Contains(launch, first));
  CHECK(Contains(launch, second));
  CHECK(run.Pids().empty());
}

TEST_CASE("a config that can be read only once is refused") {
  const ScratchFolder folder;
  const std::string pipe = folder.Path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Program launch({"tools/launch/launch", "--config=" + pipe});
  CHECK(launch.Wait() == 2);
  INFO(launch.output());
  CHECK(Contains(launch, "is a pipe, which can be read once"));
}

TEST_CASE("numbers below 0 are refused") {
  ScriptedRun run;
  const auto& [flag, allowed] =
      GENERATE(std::pair("--stdin=-1", "--stdin: is -1, allowed: 0 to 2"),
               std::pair("--max_restarts=-1", "--max_restarts: is -1, allowed: 0 or more"));
  run.flags = {flag};
  Program& launch = run.Start();
  CHECK(launch.Wait() == 2);
  CHECK(Contains(launch, allowed));
}

TEST_CASE("an override in several lines is refused") {
  ScriptedRun run;
  run.flags = {"--set=optimizer={kind: SGD\nlearning_rate: 0.5}"};
  Program& launch = run.Start();
  CHECK(launch.Wait() == 2);
  INFO(launch.output());
  CHECK(Contains(launch, "has a line break, allowed: FIELD=VALUE in one line"));
  CHECK(run.Pids().empty());
}

TEST_CASE("a config whose name begins with a dot names a run") {
  ScriptedRun run;
  run.Start().Wait();
  std::filesystem::rename(run.folder.Path("config"), run.folder.Path(".config"));
  Program launch({"tools/launch/launch", "--config=" + run.folder.Path(".config"),
                  "--ps=" + run.folder.Path("ps"), "--worker=" + run.folder.Path("worker")});
  CHECK(launch.Wait() == 0);
  INFO(launch.output());
  CHECK(Contains(launch, "the run succeeded"));
}

TEST_CASE("each process gets the config, its number, the overrides and the shards' ports") {
  ScriptedRun run;
  run.ps = "echo \"$@\"; await_signal";
  run.worker = "echo \"$@\"; await_shards";
  run.flags = {"--set=optimizer.learning_rate=0.5", "--summary=result"};
  Program& launch = run.Start();
  REQUIRE(launch.Wait() == 0);
  INFO(launch.output());
  const std::string common =
      absl::StrCat("--config=", run.folder.Path("config"), " --set=optimizer.learning_rate=0.5 ");
  std::smatch match;
  REQUIRE(std::regex_search(launch.output(), match,
                            std::regex("--set=shard\\[0\\]\\.address=127\\.0\\.0\\.1:(\\d+) "
                                       "--set=shard\\[1\\]\\.address=127\\.0\\.0\\.1:(\\d+)\n")));
  CHECK(match[1] != match[2]);
  CHECK(match[1] != "0");
  const std::string all = absl::StrCat(common, match.str());
  CHECK(Contains(launch, "[ps 0] --shard=0 " + all));
  CHECK(Contains(launch, "[ps 1] --shard=1 " + all));
  CHECK(Contains(launch, "[worker 0] --rank=0 --summary=result " + all));
  CHECK(Contains(launch, "[worker 2] --rank=2 " + all));
}

TEST_CASE(
    "statistics and the model are saved after the workers have ended and before the shards end") {
  ScriptedRun run;
  run.psctl = "echo \"$1\" \"$2\" \"$3\"; kill -0 $(cat ps0.ready ps1.ready) || exit 9";
  run.worker = "await_shards; echo finished";
  run.flags = {"--save=" + run.folder.Path("model"), "--stats=" + run.folder.Path("stats")};
  SECTION("both succeed") {
    Program& launch = run.Start();
    CHECK(launch.Wait() == 0);
    const std::string& output = launch.output();
    INFO(output);
    const size_t stats =
        output.find("[stats] stats --format=json --out=" + run.folder.Path("stats") + "\n");
    const size_t save = output.find("[save] save --out=" + run.folder.Path("model"));
    REQUIRE(stats != std::string::npos);
    REQUIRE(save != std::string::npos);
    CHECK(Contains(launch, "[launch] the model is in " + run.folder.Path("model") + "\n"));
    CHECK(output.rfind("] finished") < stats);
    CHECK(stats < save);
    CHECK(run.AllGone());
  }
  SECTION("one fails") {
    run.psctl = "[[ $1 == stats ]] || exit 4";
    Program& launch = run.Start();
    CHECK(launch.Wait() == 4);
    CHECK(Contains(launch, "[launch] save failed with exit code 4\n"));
    CHECK(run.AllGone());
  }
}

TEST_CASE("if a program cannot be started, those already started are ended") {
  ScriptedRun run;
  run.worker_flag = "--worker=/nowhere/worker";
  Program& launch = run.Start();
  CHECK(launch.Wait() == 1);
  INFO(launch.output());
  CHECK(Contains(launch, "[launch] worker 0: cannot start /nowhere/worker: No such file"));
  CHECK(Contains(launch, "[launch] the run failed: worker 0: cannot start /nowhere/worker"));
  CHECK(run.AllGone());
}

TEST_CASE(
    "launch starts nothing if the config is wrong, data is missing or a result cannot be written") {
  ScriptedRun run;
  int code = 2;
  std::string message;
  SECTION("config") {
    run.flags = {"--set=workers=0"};
    message = "--set workers=0: ";
  }
  SECTION("data") {
    run.flags = {"--set=compute.backend=CPU", "--set=data.idx.images=none",
                 "--set=data.idx.labels=none"};
    message = "none";
  }
  SECTION("model") {
    run.flags = {"--save=/nowhere/model"};
    code = 1;
    message = "/nowhere/model";
  }
  SECTION("statistics") {
    run.flags = {"--stats=/nowhere/stats"};
    code = 1;
    message = "/nowhere/stats";
  }
  SECTION("a host of another machine, in plaintext") {
    run.flags = {"--set=shard[1].address=192.0.2.1:0"};
    message =
        "shard[1].address is \"192.0.2.1:0\", which is of other hosts, and nothing says who may "
        "do what";
  }
  SECTION("a host of another machine") {
    run.flags = {"--set=shard[1].address=192.0.2.1:0", "--set=security.insecure=true"};
    code = 1;
    message = "is \"192.0.2.1:0\", where this machine cannot listen";
  }
  const Listener tcp(AF_INET);
  SECTION("a port that another run listens on") {
    run.flags = {"--set=shard[1].address=" + tcp.address()};
    code = 1;
    message = "where this machine cannot listen: Address already in use";
  }
  const Listener unix_socket(AF_UNIX, run.folder.Path("socket"));
  SECTION("a socket that another run listens on") {
    run.flags = {"--set=shard[1].address=" + unix_socket.address()};
    code = 1;
    message = "where this machine cannot listen: Address already in use";
  }
  Program& launch = run.Start();
  CHECK(launch.Wait() == code);
  INFO(launch.output());
  CHECK(Contains(launch, message));
  CHECK(run.Pids().empty());
}

TEST_CASE("if launch runs on a terminal, worker 0 gets one too, and the others do not") {
  ScriptedRun run;
  run.worker =
      "[[ -t 1 ]] && echo \"draws on $(stty size <&2)\" || echo prints lines; await_shards";
  Program& launch = run.Start(/*terminal_columns=*/100);
  CHECK(launch.Wait() == 0);
  INFO(launch.output());
  CHECK(Contains(launch, "[worker 0] \033[0mdraws on 1 89\n"));
  CHECK(Contains(launch, "[worker 1] \033[0mprints lines\n"));
}

}  // namespace
}  // namespace evenshard
