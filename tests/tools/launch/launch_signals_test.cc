// Signals to launch, with scripts in place of the programs.

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/process/local_run.h"
#include "tests/testing/await.h"
#include "tests/tools/launch/scripted_run.h"

namespace evenshard {

TEST_CASE("SIGTERM and SIGINT are passed on to every process and end the run") {
  const auto [signal, name] = GENERATE(std::pair<int, std::string>(SIGTERM, "TERM"),
                                       std::pair<int, std::string>(SIGINT, "INT"));
  ScriptedRun run;
  run.worker = "await_signal";
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), signal);
  CHECK(launch.Wait() == 128 + signal);
  INFO(launch.output());
  for (const char* label : {"ps 0", "ps 1", "worker 0", "worker 1", "worker 2"}) {
    CHECK(Contains(launch, absl::StrCat("[", label, "] got ", name, "\n")));
  }
  CHECK(Contains(launch, absl::StrCat("[launch] ending the run on SIG", name, "\n")));
  CHECK(run.AllGone());
}

TEST_CASE("when a signal ends the run, the workers end, results are saved, and the shards end") {
  const auto [signal, name] = GENERATE(std::pair<int, std::string>(SIGTERM, "TERM"),
                                       std::pair<int, std::string>(SIGINT, "INT"));
  ScriptedRun run;
  run.worker = "await_signal";
  run.psctl = "echo \"asked for $1\"; kill -0 $(cat ps0.ready ps1.ready)";
  run.flags = {"--save=" + run.folder.Path("model"), "--stats=" + run.folder.Path("stats")};
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), signal);
  CHECK(launch.Wait() == 128 + signal);
  const std::string& output = launch.output();
  INFO(output);
  const std::vector<std::string> steps = {
      absl::StrCat("[launch] ending the run on SIG", name, "\n"),
      absl::StrCat("[worker 2] got ", name, "\n"),
      "[stats] asked for stats\n",
      absl::StrCat("[launch] the statistics are in ", run.folder.Path("stats"), "\n"),
      "[save] asked for save\n",
      absl::StrCat("[launch] the model is in ", run.folder.Path("model"), "\n"),
      absl::StrCat("[ps 1] got ", name, "\n"),
      absl::StrCat("[launch] the run was ended by SIG", name, "\n")};
  size_t place = 0;
  for (const std::string& step : steps) {
    CAPTURE(step);
    const size_t found = output.find(step, place);
    REQUIRE(found != std::string::npos);
    place = found;
  }
  CHECK(run.AllGone());
}

TEST_CASE("after a signal, launch says what it could not save, and the exit code is the signal's") {
  ScriptedRun run;
  run.worker = "await_signal";
  run.flags = {"--save=" + run.folder.Path("model"), "--stats=" + run.folder.Path("stats")};
  std::string message;
  SECTION("one fails") {
    run.psctl = "[[ $1 == stats ]] || exit 4";
    message = "[launch] save failed with exit code 4\n";
  }
  SECTION("one takes too long") {
    run.config = "limits { shutdown_seconds: 6 }";
    run.psctl = "sleep_on";
    message =
        "[launch] killing stats, which did not end\n"
        "[launch] stats was killed by SIGKILL\n"
        "[launch] there is no time left for save\n";
  }
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), SIGINT);
  CHECK(launch.Wait() == 128 + SIGINT);
  INFO(launch.output());
  CHECK(Contains(launch, message));
  CHECK(Contains(launch, "[ps 0] got INT\n"));
  CHECK(run.AllGone());
}

TEST_CASE("a signal that arrives while results are saved does not stop the saving") {
  ScriptedRun run;
  run.psctl = "echo saving; until [[ -e go ]]; do sleep 0.01; done";
  run.flags = {"--save=" + run.folder.Path("model")};
  Program& launch = run.Start();
  launch.WaitFor("[save] saving\n");
  kill(launch.pid(), SIGTERM);
  launch.WaitFor("[launch] ending the run on SIGTERM");
  run.folder.Write("go", "");
  CHECK(launch.Wait() == 128 + SIGTERM);
  INFO(launch.output());
  CHECK(Contains(launch, "[launch] the model is in " + run.folder.Path("model") + "\n"));
  CHECK(run.AllGone());
}

TEST_CASE("after a second signal nothing more is saved") {
  ScriptedRun run;
  run.worker = "await_signal";
  run.psctl = "echo \"asked for $1\"; sleep_on";
  run.flags = {"--save=" + run.folder.Path("model"), "--stats=" + run.folder.Path("stats")};
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), SIGINT);
  launch.WaitFor("[stats] asked for stats\n");
  kill(launch.pid(), SIGINT);
  CHECK(launch.Wait() == 128 + SIGINT);
  INFO(launch.output());
  CHECK_FALSE(Contains(launch, "asked for save"));
  CHECK(run.AllGone());
}

TEST_CASE("a second signal kills every process at once") {
  ScriptedRun run;
  run.worker = "trap '' TERM; ready; sleep_on";
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), SIGTERM);
  launch.WaitFor("[launch] ending the run on SIGTERM");
  kill(launch.pid(), SIGTERM);
  CHECK(launch.Wait() == 128 + SIGTERM);
  CHECK(run.AllGone());
}

TEST_CASE("a signal ends a launch that still waits to read a checkpoint, and leaves nothing") {
  ScriptedRun run;
  const std::string folder = run.folder.Path("checkpoints");
  // A manifest that cannot be read.
  std::filesystem::create_directories(
      absl::StrCat(folder, "/generation-0001-iteration-0000000005/manifest.json"));
  run.config = absl::StrCat("limits { startup_seconds: 10000 } recovery { checkpoint { folder: \"",
                            folder, "\" every_iterations: 5 } }");
  const std::string name = absl::StrCat("waits-", getpid());
  run.flags = {"--resume", "--name=" + name};
  Program& launch = run.Start();
  launch.WaitFor("; trying again for 2h46m40s\n");
  const std::string before = launch.output();
  kill(launch.pid(), SIGINT);
  CHECK(launch.Wait() == 128 + SIGINT);
  CHECK(launch.output() == before);
  CHECK(absl::IsNotFound(FindLocalRun(name).status()));
}

TEST_CASE("a terminal that closes may say so twice") {
  ScriptedRun run;
  run.worker = "await_signal";
  run.psctl = "echo saving; until [[ -e go ]]; do sleep 0.01; done";
  run.flags = {"--save=" + run.folder.Path("model")};
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), SIGHUP);
  launch.WaitFor("[save] saving\n");
  kill(launch.pid(), SIGHUP);
  run.folder.Write("go", "");
  CHECK(launch.Wait() == 128 + SIGHUP);
  INFO(launch.output());
  CHECK(Contains(launch, "[worker 0] got TERM\n"));
  CHECK(Contains(launch, "[launch] the model is in " + run.folder.Path("model") + "\n"));
  CHECK(run.AllGone());
}

TEST_CASE("a signal that launch was started to ignore stays ignored") {
  ScriptedRun run;
  run.starter = {"nohup"};
  run.worker = "await_signal";
  Program& launch = run.Start();
  run.AwaitAll();
  kill(launch.pid(), SIGHUP);
  kill(launch.pid(), SIGTERM);
  CHECK(launch.Wait() == 128 + SIGTERM);
  CHECK_FALSE(Contains(launch, "SIGHUP"));
  CHECK(run.AllGone());
}

TEST_CASE("when nobody reads the output any more, the run ends in order") {
  ScriptedRun run;
  // It reads a line, and ends when all workers can be told.
  const std::string reads =
      absl::StrCat("{ head -n 1; cd ", run.folder.Path("."),
                   "; for i in {1..6000}; do [[ -s worker0.ready && -s worker1.ready && -s "
                   "worker2.ready ]] && break; sleep 0.01; done; }");
  run.starter = {"bash", "-c", absl::StrCat("\"$@\" | ", reads, "; echo \"code ${PIPESTATUS[0]}\""),
                 "bash"};
  run.worker = "trap 'touch told; exit 0' TERM; ready; while :; do echo loud; sleep 0.02; done";
  run.psctl = "touch \"asked-for-$1\"";
  run.flags = {"--save=" + run.folder.Path("model")};
  Program& launch = run.Start();
  CHECK(launch.Wait() == 0);
  INFO(launch.output());
  CHECK(Contains(launch, absl::StrCat("code ", 128 + SIGPIPE, "\n")));
  CHECK(std::filesystem::exists(run.folder.Path("told")));
  CHECK(std::filesystem::exists(run.folder.Path("asked-for-save")));
}

TEST_CASE("a signal ends the run while the reader of the output has stopped") {
  ScriptedRun run;
  // It does not read, and ends with launch.
  run.starter = {"bash", "-c",
                 "( p=$BASHPID; echo \"launch $p.\"; exec \"$@\""
                 " > >(while kill -0 $p 2>/dev/null; do sleep 0.05; done) ); echo \"code $?.\"",
                 "bash"};
  run.worker = "ready; while :; do printf '%01000d\n' 0; echo >>printed; done";
  Program& launch = run.Start();
  launch.WaitFor("launch ");
  launch.WaitFor(".\n");
  const std::string& output = launch.output();
  const pid_t pid = std::stoi(output.substr(output.find("launch ") + 7));
  // When the workers stand still, there is no room in launch's output.
  const std::string printed = run.folder.Path("printed");
  AwaitTrue([&] { return std::filesystem::exists(printed); });
  for (uintmax_t before = 0; before != std::filesystem::file_size(printed);) {
    before = std::filesystem::file_size(printed);
    absl::SleepFor(absl::Milliseconds(500));
  }
  kill(pid, SIGTERM);
  CHECK(launch.Wait() == 0);
  CHECK(Contains(launch, absl::StrCat("code ", 128 + SIGTERM, ".\n")));
}

TEST_CASE("when launch itself is killed, none of its processes survives") {
  ScriptedRun run;
  run.worker = "await_signal";
  Program& launch = run.Start();
  run.AwaitAll();
  const std::vector<pid_t> pids = run.Pids();
  CHECK(pids.size() == 5);
  kill(launch.pid(), SIGKILL);
  for (const pid_t pid : pids) CHECK(Ends(pid));
}

}  // namespace evenshard
