// Processes that reach etcd, and not each other.

#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/control/etcd/tcp_proxy.h"
#include "tests/recovery/etcd_run.h"
#include "tests/testing/await.h"

namespace evenshard {
namespace {

// Starts the process that listens at this socket, with a proxy in its way.
std::unique_ptr<TcpProxy> StartBehindProxy(const EtcdRun& run, int index,
                                           std::unique_ptr<Program>* ps) {
  *ps = run.Ps(index);
  const std::string path = run.folder.Path(absl::StrCat(index, ".sock"));
  AwaitTrue([&] { return std::filesystem::exists(path); });
  return std::make_unique<TcpProxy>(TcpProxy::InFrontOf{path});
}

}  // namespace

TEST_CASE("a run goes on when a primary cannot reach the spare that has its replica") {
  REQUIRE_ETCD();
  EtcdRun run(std::nullopt);
  run.Configure(absl::StrCat(
      "replicas: 1 worker_loss: WAIT spare { address: \"unix:", run.folder.Path("2.sock"), "\" }"));
  run.time_dilation *= 5;
  std::unique_ptr<Program> spare;
  const auto way = StartBehindProxy(run, 2, &spare);
  run.StartAll();
  run.AwaitIteration(20);
  CHECK(run.ReadView().slot(1).replica().process() == 2);
  way->HoldFrom(run.ps[1]->pid());
  run.AwaitView([](const View& view) {
    return view.slot(1).replica_is_complete() && view.slot(1).replica().process() == 0;
  });
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() == 1);
  run.End();
}

TEST_CASE("a run goes on when one worker cannot reach one shard") {
  REQUIRE_ETCD();
  EtcdRun run("replicas: 1 worker_loss: WAIT");
  run.time_dilation *= 5;
  const auto way = StartBehindProxy(run, 0, &run.ps[0]);
  run.ps[1] = run.Ps(1);
  for (int i = 0; i < 2; ++i) {
    // The sooner a worker would give up, the sooner it notices that a connection is dead.
    run.workers[i] = run.Worker(i, {"--set=limits.exchange_seconds=42"});
  }
  run.AwaitIteration(20);
  way->HoldFrom(run.workers[1]->pid());
  run.AwaitView([](const View& view) { return view.slot(0).primary().process() == 1; });
  CHECK(run.Finish() == Undisturbed());
  CHECK(run.ReadView().generation() == 1);
  run.End();
}

}  // namespace evenshard
