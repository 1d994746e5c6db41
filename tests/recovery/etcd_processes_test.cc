// ps and worker as users start them on several machines, with the views in a real etcd.

#include <signal.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/folder_owner.h"
#include "common/checkpoint/storage/real_storage.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/recovery/etcd_run.h"

namespace evenshard {

using Catch::Contains;

TEST_CASE("a run with etcd trains to the end") {
  REQUIRE_ETCD();
  EtcdRun run(GENERATE("replicas: 1 worker_loss: WAIT", "worker_loss: FAIL"));
  run.StartAll();
  CHECK(run.Finish() == Undisturbed());
  const View view = run.ReadView();
  CHECK(view.generation() == 1);
  CHECK(view.worker(0).state() == WorkerView::FINISHED);
  run.End();
  // Each process has given its place up.
  CHECK(run.Coordinator().empty());
}

TEST_CASE("a ps that is killed and started again takes its slot again") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.time_dilation *= 5;  // who comes after the end is refused
  run.StartAll();
  run.AwaitIteration(20);
  const int index = GENERATE(0, 1);  // one of them makes the views
  const uint64_t first = run.ReadView().slot(index).primary().incarnation();
  kill(run.ps[index]->pid(), SIGKILL);
  CHECK(run.ps[index]->Wait() == 137);
  const auto is_primary = [&](const View& view, uint32_t process) {
    return view.slot(index).has_primary() && view.slot(index).primary().process() == process;
  };
  SECTION("after another has taken it over") {
    run.AwaitView([&](const View& view) { return is_primary(view, 1 - index); });
    run.ps[index] = run.Ps(index);
  }
  SECTION("at once") { run.ps[index] = run.Ps(index); }
  run.AwaitView([&](const View& view) {
    return is_primary(view, index) && view.slot(index).primary().incarnation() != first;
  });
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() == 1);
  run.End();
}

TEST_CASE("without copies a run goes back to a checkpoint") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 10 }");
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(30);
  kill(run.ps[1]->pid(), SIGKILL);
  CHECK(run.ps[1]->Wait() == 137);
  run.ps[1] = run.Ps(1);
  const View view = run.AwaitView([](const View& view) { return view.generation() == 2; });
  CHECK_THAT(view.checkpoint(), Contains("generation-0001-iteration-"));
  CHECK(run.Finish() == Undisturbed());
  run.End();
}

TEST_CASE("a slot that nobody holds for longer than any limit is waited for") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 10 }");
  run.time_dilation *= 5;
  const std::vector<std::string> flags = {"--set=limits.exchange_seconds=12"};
  for (int i = 0; i < 2; ++i) run.ps[i] = run.Ps(i, flags);
  for (int i = 0; i < 2; ++i) run.workers[i] = run.Worker(i, flags);
  run.AwaitIteration(30);
  kill(run.ps[1]->pid(), SIGKILL);
  run.AwaitView([](const View& view) { return !view.slot(1).has_primary(); });
  absl::SleepFor(absl::Seconds(16));  // a worker's limit is 14.2 s
  run.ps[1] = run.Ps(1, flags);
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() == 2);
  run.End();
}

TEST_CASE("a worker that has finished stays until the training has ended") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_seconds: 0.2 }");
  const std::vector<std::string> flags = {"--set=limits.exchange_seconds=8",
                                          "--set=update.policy=ASYNC",
                                          "--set=update.deterministic=false"};
  for (int i = 0; i < 2; ++i) run.ps[i] = run.Ps(i, flags);
  run.workers[0] = run.Worker(0, flags);
  const auto has_finished = [](const View& view) {
    return view.worker(0).state() == WorkerView::FINISHED;
  };
  run.AwaitView(has_finished);
  SECTION("and goes on if the run goes back") {
    kill(run.ps[1]->pid(), SIGKILL);
    run.ps[1] = run.Ps(1, flags);
    run.AwaitView([](const View& view) { return view.generation() == 2; });
    run.AwaitView(has_finished);
    run.workers[1] = run.Worker(1, flags);
    run.Finish();
  }
  SECTION("and waits for that, if it is started again") {
    kill(run.workers[0]->pid(), SIGKILL);
    run.workers[0] = run.Worker(0, flags);
    run.workers[0]->WaitFor("worker 0 has finished in this run");
    absl::SleepFor(absl::Seconds(12));  // a worker's limit is 9.8 s
    run.workers[1] = run.Worker(1, flags);
    CHECK(run.workers[1]->Wait() == 0);
    CHECK(run.workers[0]->Wait() == 1);
    CHECK_THAT(run.workers[0]->output(), Contains("the training has ended without this worker"));
  }
  run.End();
}

TEST_CASE("a run survives that all its processes are killed, those of etcd too") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 10 }");
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(30);
  for (auto* processes : {&run.ps, &run.workers}) {
    for (auto& process : *processes) kill(process->pid(), SIGKILL);
  }
  run.etcd.Kill();
  run.etcd.Start();
  run.StartAll();
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() >= 2);
  run.End();
}

TEST_CASE("etcd may go away in the middle of a run") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(20);
  SECTION("and is started again") {
    run.etcd.Kill();
    run.etcd.Start();
  }
  SECTION("and is away for longer than the processes may be silent") {
    run.etcd.Kill();
    absl::SleepFor(absl::Seconds(8));
    run.etcd.Start();
  }
  SECTION("or stands still") {
    run.etcd.Pause();
    absl::SleepFor(absl::Seconds(1));
    run.etcd.Resume();
  }
  CHECK(run.Finish() == Undisturbed());
  run.End();
}

// An etcd of one member that has stood still ends every lease at once when it goes on.
TEST_CASE("a run survives that every process loses its place") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 10 }");
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(20);
  run.etcd.Pause();
  absl::SleepFor(absl::Seconds(8));
  run.etcd.Resume();
  for (int i = 0; i < 2; ++i) {
    CHECK(run.ps[i]->Wait() == 1);
    CHECK(run.workers[i]->Wait() == 1);
    CHECK_THAT(run.ps[i]->output(), Contains("has to be started again"));
    CHECK_THAT(run.workers[i]->output(), Contains("has to be started again"));
  }
  run.StartAll();
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() >= 2);
  run.End();
}

TEST_CASE("an etcd that answers late does no harm") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  TcpProxy proxy(run.etcd.port());
  proxy.Delay(absl::Milliseconds(50));
  const std::vector<std::string> late = {
      absl::StrCat("--set=recovery.etcd.endpoint[0]=", proxy.endpoint())};
  for (int i = 0; i < 2; ++i) run.ps[i] = run.Ps(i, late);
  for (int i = 0; i < 2; ++i) run.workers[i] = run.Worker(i, late);
  CHECK(run.Finish() == Undisturbed());
  run.End();
}

TEST_CASE("without an etcd a process says so and ends") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.etcd.Kill();
  const std::vector<std::string> flags = {"--set=limits.startup_seconds=1"};
  const auto process = GENERATE(true, false) ? run.Ps(0, flags) : run.Worker(0, flags);
  CHECK(process->Wait() == 1);
  INFO(process->output());
  CHECK_THAT(process->output(), Contains(run.etcd.endpoint()) && Contains(" error "));
}

TEST_CASE("a coordinator without its folder ends with an error before it knows the model too") {
  REQUIRE_ETCD();
  EtcdRun run(std::nullopt);
  run.folder.Write("file", "");
  run.config_path = run.folder.Write(
      "brought.textproto",
      absl::StrCat(
          "model { from_workers {} } partition { scheme: STRIPED } shard { address: \"unix:",
          run.folder.Path("0.sock"), "\" } workers: 1 update { policy: SYNC } ",
          "recovery { etcd { endpoint: \"", run.etcd.endpoint(),
          "\" } checkpoint { folder: \"file/checkpoints\" every_iterations: 10 } }"));
  Program ps({"server/ps", "--shard=0", "--config=" + run.config_path});
  CHECK(ps.Wait() == 1);
  INFO(ps.output());
  CHECK_THAT(ps.output(), Contains("ending before worker 0 has declared the model") &&
                              Contains("cannot make the folder"));
}

TEST_CASE("a process with another config is refused, and the run goes on") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.time_dilation *= 5;
  for (int i = 0; i < 2; ++i) run.ps[i] = run.Ps(i);
  run.workers[0] = run.Worker(0);
  const std::vector<std::string> other = {"--set=optimizer.learning_rate=0.5"};
  SECTION("a worker") {
    const auto worker = run.Worker(1, other);
    CHECK(worker->Wait() == 1);
    CHECK_THAT(worker->output(), Contains("worker 1 has another config than the run"));
    run.workers[1] = run.Worker(1);
  }
  SECTION("a worker that comes back") {
    run.workers[1] = run.Worker(1);
    run.AwaitIteration(20);
    kill(run.workers[1]->pid(), SIGKILL);
    run.workers[1] = run.Worker(1, other);
    CHECK(run.workers[1]->Wait() == 1);
    CHECK_THAT(run.workers[1]->output(), Contains("worker 1 has another config than the run"));
    run.workers[1] = run.Worker(1);
  }
  SECTION("a ps") {
    run.workers[1] = run.Worker(1);
    run.AwaitIteration(20);
    kill(run.ps[1]->pid(), SIGKILL);
    run.ps[1] = run.Ps(1, other);
    CHECK(run.ps[1]->Wait() == 2);
    CHECK_THAT(run.ps[1]->output(), Contains("ps 1 has another config than the run"));
    run.ps[1] = run.Ps(1);
  }
  CHECK(run.Finish() == Undisturbed());
  run.End();
}

TEST_CASE("before the first view, a coordinator waits for a folder that its predecessor holds") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 50 }");
  RealStorage storage;
  auto predecessor = FolderOwner::Take(
      &storage, run.config->proto().recovery().checkpoint().folder(), 7, "one that stands still");
  REQUIRE(predecessor.ok());
  run.ps[0] = run.Ps(0);
  run.ps[0]->WaitFor("ps 0 is not the coordinator for now: another run uses the folder");
  predecessor->reset();
  run.ps[1] = run.Ps(1);
  for (int i = 0; i < 2; ++i) run.workers[i] = run.Worker(i);
  CHECK(run.Finish() == Undisturbed());
  run.End();
}

TEST_CASE("a run begins from the checkpoints of another only with --resume") {
  REQUIRE_ETCD();
  EtcdRun run("worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 50 }");
  run.StartAll();
  CHECK(run.Finish() == Undisturbed());
  run.End();
  // The name of that run is used up.
  run.ps[0] = run.Ps(0);
  CHECK(run.ps[0]->Wait() == 2);
  CHECK_THAT(run.ps[0]->output(),
             Contains("is over: it has succeeded") && Contains("change recovery.etcd.run"));
  std::vector<std::string> flags = {"--set=recovery.etcd.run=second"};
  SECTION("without") {
    for (int i = 0; i < 2; ++i) run.ps[i] = run.Ps(i, flags);
    for (int i = 0; i < 2; ++i) CHECK(run.ps[i]->Wait() == 2);
    CHECK_THAT(run.ps[0]->output() + run.ps[1]->output(),
               Contains("has checkpoints of an earlier run") && Contains("allowed: --resume"));
  }
  SECTION("with") {
    flags.push_back("--resume");
    for (int i = 0; i < 2; ++i) run.ps[i] = run.Ps(i, flags);
    flags.pop_back();
    for (int i = 0; i < 2; ++i) run.workers[i] = run.Worker(i, flags);
    for (auto& worker : run.workers) {
      CHECK(worker->Wait() == 0);
      CHECK_THAT(worker->output(), Contains("done: 0 iterations"));
    }
    run.End();
  }
}

}  // namespace evenshard
