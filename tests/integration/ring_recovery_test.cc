// Rings of the real programs whose workers are killed.

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/integration/ring_launch.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {
namespace {

using Catch::Contains;
using Texts = std::vector<std::string>;

// A run of launch in a folder of its own, with checkpoints there.
class RingRun {
 public:
  RingRun(int workers, const std::string& recovery, const Texts& more = {}, const Texts& flags = {})
      : RingRun(std::make_shared<ScratchFolder>(), workers, recovery, more, flags) {}

  RingRun(std::shared_ptr<ScratchFolder> folder, int workers, const std::string& recovery,
          const Texts& more = {}, const Texts& flags = {})
      : folder_(std::move(folder)), launch_(Command(workers, recovery, more, flags)) {}

  Program& launch() { return launch_; }
  const std::string& output() const { return launch_.output(); }
  const ScratchFolder& folder() const { return *folder_; }

  void Signal(int rank, int signal) {
    const std::vector<pid_t> found =
        FindProcesses({absl::StrCat("--rank=", rank), folder_->Path(absl::StrCat(rank, ".sock"))});
    REQUIRE(found.size() == 1);
    kill(found[0], signal);
  }
  // Waits for the end, and returns the model.
  std::string Saved() {
    const int code = launch_.Wait();
    INFO(output());
    REQUIRE(code == 0);
    return folder_->Read("model");
  }

 private:
  Texts Command(int workers, const std::string& recovery, const Texts& more, Texts flags) const {
    // Without a name of its own, two tests at the same time could have the same.
    const std::string name = std::filesystem::path(folder_->Path("x")).parent_path().filename();
    flags.insert(flags.end(), {"--name=" + name, "--save=" + folder_->Path("model")});
    Texts overrides = {
        "training={batch_size: 8 epochs: 30 evaluate_every_epochs: 10 "
        "required_accuracy: 0.9}"};
    if (!recovery.empty()) overrides.push_back(absl::StrCat("recovery={", recovery, "}"));
    overrides.insert(overrides.end(), more.begin(), more.end());
    return LaunchRing(*folder_, workers, flags, overrides);
  }

  const std::shared_ptr<ScratchFolder> folder_;
  Program launch_;
};

std::string Checkpoints(const ScratchFolder& folder, int every) {
  return absl::StrCat("checkpoint { folder: '", folder.Path("checkpoints"),
                      "' every_iterations: ", every, " }");
}

// The same with a folder of its own.
std::unique_ptr<RingRun> Start(int workers, int every, const std::string& recovery,
                               const Texts& more = {}, const Texts& flags = {}) {
  auto folder = std::make_shared<ScratchFolder>();
  const std::string all = absl::StrCat(Checkpoints(*folder, every), " ", recovery);
  return std::make_unique<RingRun>(folder, workers, all, more, flags);
}

// What a line about any checkpoint ends with. The very first one may be passed over, if training
// is fast.
constexpr char kIsComplete[] = " is complete";

}  // namespace

TEST_CASE("a ring whose workers are killed comes to the bits of one that was not disturbed") {
  const Texts more = {GENERATE("optimizer={kind: MOMENTUM learning_rate: 0.02 momentum: 0.9}",
                               "optimizer={kind: ADAM learning_rate: 0.002}")};
  const std::string undisturbed = RingRun(3, "", more).Saved();

  const auto killed = Start(3, 100, "worker_loss: WAIT", more);
  killed->launch().WaitFor(kIsComplete);
  killed->Signal(1, SIGKILL);
  killed->launch().WaitFor("went back to the checkpoint of iteration ");
  killed->launch().WaitFor("with 3 workers, because worker 1 was killed by SIGKILL");
  killed->Signal(2, SIGKILL);
  CHECK(killed->Saved() == undisturbed);
  INFO(killed->output());
  CHECK_THAT(killed->output(), Contains("the run succeeded; it survived 2 deaths: worker 1 (1x), "
                                        "worker 2 (1x)"));
}

TEST_CASE("before its first checkpoint a ring goes back to the initial parameters") {
  const std::string undisturbed = RingRun(2, "").Saved();
  const auto killed = Start(2, 1000000, "worker_loss: WAIT");
  killed->launch().WaitFor("epoch ");
  killed->Signal(0, SIGKILL);
  CHECK(killed->Saved() == undisturbed);
  CHECK_THAT(killed->output(),
             Contains("went back to the initial parameters, since there is no complete checkpoint "
                      "yet with 2 workers, because worker 0 was killed by SIGKILL"));

  RingRun without(2, "worker_loss: WAIT");
  without.launch().WaitFor("epoch ");
  without.Signal(1, SIGKILL);
  CHECK(without.Saved() == undisturbed);
  CHECK_THAT(without.output(), Contains("went back to the initial parameters with 2 workers"));
}

TEST_CASE(
    "under CONTINUE the workers that are left train to the end, and the first of them saves") {
  const auto run = Start(4, 100, "worker_loss: CONTINUE");
  run->launch().WaitFor(kIsComplete);
  run->Signal(0, SIGKILL);
  run->launch().WaitFor("with 3 workers, because worker 0 was killed by SIGKILL");
  run->Signal(2, SIGKILL);
  CHECK(!run->Saved().empty());
  CHECK_THAT(run->output(), Contains("with 2 workers, because worker 2 was killed by SIGKILL"));
  CHECK_THAT(run->output(), Contains("[worker 1] "));
  CHECK_THAT(run->output(), !Contains("; starting it again"));
  CHECK_THAT(run->output(), Contains("[launch] the run succeeded; it survived 2 deaths: worker 0 "
                                     "(1x), worker 2 (1x)"));
}

TEST_CASE("psctl stats says without whom a ring has gone on") {
  const auto run = Start(3, 100, "worker_loss: CONTINUE",
                         {"training.epochs=100000", "training.required_accuracy=0"});
  run->launch().WaitFor(kIsComplete);
  run->Signal(1, SIGKILL);
  Texts command = {"tools/psctl/psctl", "stats", absl::StrCat("--config=", kRingConfigFile)};
  for (const std::string& each : RingOverrides(run->folder(), 3)) command.push_back(each);
  int code = -1;
  std::string report;
  const absl::Time last = absl::Now() + absl::Seconds(60);
  while ((code != 0 || !absl::StrContains(report, "left out")) && absl::Now() < last) {
    Program stats(command);
    code = stats.Wait();
    report = stats.output();
  }
  INFO(report);
  CHECK(code == 0);
  CHECK_THAT(report, Contains("1.sock  left out"));
  CHECK_THAT(report, Contains("the ring of generation 2 has the workers 0, 2\n"));
  kill(run->launch().pid(), SIGTERM);
  run->launch().Wait();
}

TEST_CASE("a worker of a ring that hangs is killed and replaced") {
  const auto run = Start(3, 100, "worker_loss: WAIT silence_seconds: 1");
  run->launch().WaitFor(kIsComplete);
  run->Signal(2, SIGSTOP);
  CHECK(!run->Saved().empty());
  CHECK_THAT(run->output(), Contains("because worker 2 was silent for 1s and was killed"));
}

TEST_CASE("with worker_loss FAIL a killed worker ends the run of a ring, which can be resumed") {
  const std::string undisturbed = RingRun(3, "").Saved();
  auto folder = std::make_shared<ScratchFolder>();
  const std::string checkpoints = Checkpoints(*folder, 100);
  {
    RingRun run(folder, 3, checkpoints);
    run.launch().WaitFor(kIsComplete);
    run.Signal(1, SIGKILL);
    CHECK(run.launch().Wait() == 128 + SIGKILL);
    CHECK_THAT(run.output(), Contains("the run failed: worker 1 was killed by SIGKILL"));
  }
  Program list(
      {"tools/psctl/psctl", "checkpoints", "--verify", "--folder=" + folder->Path("checkpoints")});
  CHECK(list.Wait() == 0);
  CHECK_THAT(list.output(), Contains("complete"));
  RingRun refused(folder, 3, checkpoints);
  CHECK(refused.launch().Wait() == 2);
  CHECK_THAT(refused.output(), Contains("which has checkpoints of an earlier run"));
  const bool is_same = GENERATE(true, false);
  RingRun resumed(folder, is_same ? 3 : 2, checkpoints, {}, {"--resume"});
  const std::string saved = resumed.Saved();
  CHECK_THAT(resumed.output(), Contains("goes on after iteration "));
  CHECK((saved == undisturbed) == is_same);
}

TEST_CASE("a ring keeps as many checkpoints as the config says") {
  auto folder = std::make_shared<ScratchFolder>();
  RingRun run(folder, 2,
              absl::StrCat("checkpoint { folder: '", folder->Path("checkpoints"),
                           "' every_iterations: 50 keep: 2 }"),
              {"training.epochs=8", "training.required_accuracy=0"});
  run.Saved();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder->Path("checkpoints"))) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  CHECK(names.size() == 2);
}

TEST_CASE("what trying again cannot help ends the run of a ring") {
  const auto diverged =
      Start(3, 100, "worker_loss: WAIT", {"optimizer={kind: SGD learning_rate: 1e30}"});
  CHECK(diverged->launch().Wait() == 1);
  INFO(diverged->output());
  CHECK_THAT(diverged->output(), Contains("the run failed: worker "));
  CHECK_THAT(diverged->output(), !Contains("starting it again"));

  const auto bad =
      Start(2, 100, "worker_loss: WAIT", {"training.epochs=1", "training.required_accuracy=0.99"});
  CHECK(bad->launch().Wait() == 1);
  CHECK_THAT(bad->output(), Contains("is below training.required_accuracy"));
  CHECK_THAT(bad->output(), !Contains("starting it again"));
}

TEST_CASE("a worker of a ring with recovery is started by launch only") {
  const ScratchFolder folder;
  Texts command = {"worker/worker", absl::StrCat("--config=", kRingConfigFile), "--rank=0"};
  for (const std::string& each : RingOverrides(folder, 2, {"recovery={worker_loss: WAIT}"})) {
    command.push_back(each);
  }
  Program worker(command);
  CHECK(worker.Wait() == 1);
  CHECK_THAT(worker.output(), Contains("recovery: is given with topology RING, and nobody can"));
}

}  // namespace evenshard
