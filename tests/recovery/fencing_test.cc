// Processes that stand still until others have their places, and then go on: nothing that they say
// or write counts any more.

#include <signal.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/recovery/etcd_run.h"

namespace evenshard {
namespace {

using Catch::Contains;

void Pause(const Program& program) { REQUIRE(kill(program.pid(), SIGSTOP) == 0); }
void Resume(const Program& program) { REQUIRE(kill(program.pid(), SIGCONT) == 0); }

// Lets a process go on, which finds out that its place is lost, and ends.
void Wake(Program& program) {
  Resume(program);
  CHECK(program.Wait() == 1);
  INFO(program.output());
  CHECK_THAT(program.output(),
             Contains("lease in etcd has ended") || Contains("counts this worker as lost"));
}

View AskForView(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = Admin::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
  View view;
  stub->GetView(&context, GetViewRequest(), &view).ok();
  return view;
}

}  // namespace

TEST_CASE("a primary that was away does no harm when its copy has taken over") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(20);
  const int index = GENERATE(0, 1);  // one of them makes the views
  Pause(*run.ps[index]);
  run.AwaitView([&](const View& view) {
    return view.slot(index).primary().process() == static_cast<uint32_t>(1 - index);
  });
  run.AwaitIteration(60, index);
  Wake(*run.ps[index]);
  run.ps[index] = run.Ps(index);
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() == 1);
  run.End();
}

TEST_CASE("a primary that was away for less than its lease goes on") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(20);
  const uint64_t incarnation = run.ReadView().slot(0).primary().incarnation();
  Pause(*run.ps[0]);
  absl::SleepFor(absl::Milliseconds(300));
  Resume(*run.ps[0]);
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().slot(0).primary().incarnation() == incarnation);
  run.End();
}

TEST_CASE("a primary that was away spoils no checkpoint of the generation after it") {
  REQUIRE_ETCD();
  EtcdRun run(std::nullopt);
  run.Configure(absl::StrCat(
      "worker_loss: WAIT checkpoint { folder: \"checkpoints\" every_iterations: 5 keep: 1000 } "
      "spare { address: \"unix:",
      run.folder.Path("2.sock"), "\" }"));
  run.time_dilation *= 5;
  run.StartAll();
  const auto spare = run.Ps(2);
  run.AwaitIteration(30);
  const int index = GENERATE(0, 1);
  Pause(*run.ps[index]);
  run.AwaitView([](const View& view) { return view.generation() == 2; });
  run.AwaitIteration(60, index);
  Wake(*run.ps[index]);
  const FinalParameters parameters = run.Finish();
  CHECK(parameters == Undisturbed());
  run.ps[index].reset();
  run.End();
  Program checkpoints(
      {"tools/psctl/psctl", "checkpoints", "--config=" + run.config_path, "--verify"});
  const int code = checkpoints.Wait();
  INFO(checkpoints.output());
  CHECK(code == 0);  // none of those with a manifest is damaged
  CHECK(std::filesystem::exists(
      run.folder.Path("checkpoints/generation-0002-iteration-0000000250/manifest.json")));
}

TEST_CASE("a worker that was away cannot push when another start has its rank") {
  REQUIRE_ETCD();
  const bool goes_on = GENERATE(false, true);
  EtcdRun run(absl::StrCat("replicas: 1 worker_loss: ", goes_on ? "CONTINUE" : "WAIT"));
  run.time_dilation *= 5;
  run.StartAll();
  run.AwaitIteration(20);
  Pause(*run.workers[1]);
  run.AwaitView([](const View& view) { return view.worker(1).state() == WorkerView::ABSENT; });
  if (goes_on) {
    run.AwaitIteration(40);
    Wake(*run.workers[1]);
    run.workers[1] = run.Worker(1);
    run.Finish();
  } else {
    const auto old = std::move(run.workers[1]);
    run.workers[1] = run.Worker(1);
    run.AwaitIteration(40);
    Wake(*old);
    CHECK(run.Finish() == Undisturbed());
  }
  CHECK(run.ReadView().generation() == 1);
  run.End();
}

// Shared memory is fenced by nothing but the death of whoever could write there.
TEST_CASE("launch kills a process that was away before another one gets its place") {
  EtcdRun run(std::nullopt);
  const std::string config =
      run.folder.Write("launch.textproto", run.folder.Read("config.textproto") +
                                               "recovery { replicas: 1 worker_loss: WAIT "
                                               "silence_seconds: 8 }");
  const auto train = [&](const std::string& name) {
    return Program({"tools/launch/launch", "--config=" + config,
                    "--set=compute.emulated.time_dilation=300000",
                    "--save=" + run.folder.Path(name)});
  };
  Program undisturbed = train("expected");
  CHECK(undisturbed.Wait() == 0);
  Program launch = train("model");
  const auto view_of = [&](int index) { return AskForView(run.config->address(index)); };
  const auto await_training = [&] {
    AwaitTrue([&] {
      const View view = view_of(0);
      return view.number() > 0 && view.worker(0).state() == WorkerView::MEMBER &&
             view.worker(1).state() == WorkerView::MEMBER;
    });
    absl::SleepFor(absl::Milliseconds(500));
  };
  await_training();
  SECTION("a primary") {
    const std::vector<pid_t> found = FindProcesses({"--shard=0", "--config=" + config});
    REQUIRE(found.size() == 1);
    const pid_t pid = found[0];
    const uint64_t incarnation = view_of(1).slot(0).primary().incarnation();
    REQUIRE(kill(pid, SIGSTOP) == 0);
    AwaitTrue([&] {
      const View view = view_of(1);
      return view.number() > 0 && view.slot(0).primary().incarnation() != incarnation;
    });
    CHECK(kill(pid, 0) == -1);
    CHECK(errno == ESRCH);
  }
  SECTION("a worker") {
    const std::vector<pid_t> found = FindProcesses({"--rank=1", "--config=" + config});
    REQUIRE(found.size() == 1);
    const pid_t pid = found[0];
    const uint64_t incarnation = view_of(1).worker(1).incarnation();
    REQUIRE(kill(pid, SIGSTOP) == 0);
    AwaitTrue([&] {
      const View view = view_of(1);
      return view.number() > 0 && view.worker(1).incarnation() != incarnation;
    });
    CHECK(kill(pid, 0) == -1);
    CHECK(errno == ESRCH);
  }
  const int code = launch.Wait();
  INFO(launch.output());
  CHECK(code == 0);
  CHECK_THAT(launch.output(),
             Contains("which has been silent for too long") && Contains("it survived 1 death"));
  CHECK(run.folder.Read("model") == run.folder.Read("expected"));
}

}  // namespace evenshard
