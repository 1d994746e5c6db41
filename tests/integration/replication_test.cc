// Slots with copies, over gRPC: processes die and come back, and the workers' results are the bits
// of a run in which nothing happens.

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/control/view/view_link.h"
#include "grpc/grpc.h"
#include "tests/testing/await.h"
#include "tests/testing/cluster.h"
#include "tests/testing/unix_shards.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {
namespace {

constexpr int kWorkers = 2;
constexpr int kPhase = 20;  // iterations between two events

// Never shut down: the end of gRPC's last user can take the 10 s of a poller of gRPC's own.
const bool kGrpcStarted = (grpc_init(), true);

// The tie to the test, which makes the views.
class TestLink final : public ViewLink {
 public:
  void Start(Listener listener) override {
    absl::MutexLock lock(&mutex_);
    listener_ = std::move(listener);
  }
  void Announce(const ProcessState& state) override {
    absl::MutexLock lock(&mutex_);
    state_ = state;
  }
  bool HoldsRoles() const override { return true; }

  ProcessState state() const {
    absl::MutexLock lock(&mutex_);
    return state_;
  }
  void Publish(const View& view) {
    std::function<void(const View&)> on_view;
    {
      absl::MutexLock lock(&mutex_);
      on_view = listener_.on_view;
    }
    on_view(view);
  }

 private:
  mutable absl::Mutex mutex_;
  Listener listener_ ABSL_GUARDED_BY(mutex_);
  ProcessState state_ ABSL_GUARDED_BY(mutex_);
};

// The processes of a run, with the test as their coordinator.
class ReplicatedRun {
 public:
  explicit ReplicatedRun(const std::vector<std::string>& overrides)
      : config(MustParse(kSmallConfig, overrides)), links(2), worker_links(kWorkers) {
    servers.resize(2);
    for (int process : {0, 1}) StartServer(process);
    for (auto& link : worker_links) link = std::make_unique<TestLink>();
  }

  void StartServer(int process) {
    servers[process].reset();
    links[process] = std::make_unique<TestLink>();
    auto server = Server::Start(
        {.config = &config, .shard = process, .clock = &clock, .view_link = links[process].get()});
    INFO(server.status().ToString());
    REQUIRE(server.ok());
    servers[process] = *std::move(server);
  }
  ProcessId Id(int process) const {
    ProcessId id;
    id.set_process(process);
    id.set_incarnation(links[process]->state().incarnation());
    id.set_address(servers[process]->address());
    return id;
  }
  void Roles(int slot, int primary, int copy, bool complete) {
    SlotView* roles = view.mutable_slot(slot);
    roles->Clear();
    *roles->mutable_primary() = Id(primary);
    if (copy >= 0) *roles->mutable_replica() = Id(copy);
    roles->set_replica_is_complete(complete);
  }
  void Publish() {
    view.set_number(view.number() + 1);
    for (int process : {0, 1}) {
      if (servers[process] != nullptr) links[process]->Publish(view);
    }
    for (const auto& link : worker_links) link->Publish(view);
  }
  // The first view, once all workers have come.
  void Begin() {
    view.set_generation(1);
    WorkerSet* worker_set = view.add_worker_set();
    for (int rank = 0; rank < kWorkers; ++rank) {
      AwaitTrue([&] { return worker_links[rank]->state().incarnation() != 0; });
      worker_set->add_rank(rank);
      WorkerView* worker = view.add_worker();
      worker->set_state(WorkerView::MEMBER);
      worker->set_incarnation(worker_links[rank]->state().incarnation());
    }
    for (int slot : {0, 1}) {
      view.add_slot();
      Roles(slot, slot, 1 - slot, true);
    }
    Publish();
  }

  const PlannedConfig config;
  const RealClock clock;
  std::vector<std::unique_ptr<TestLink>> links;
  std::vector<std::unique_ptr<TestLink>> worker_links;
  std::vector<std::unique_ptr<Server>> servers;  // destroyed before the links
  View view;
};

// The parameters after this many iterations of a run in which nothing happens.
std::vector<float> Undisturbed(std::vector<std::string> overrides, int iterations) {
  const UnixShards addresses(2);
  overrides.insert(overrides.end(), addresses.overrides().begin(), addresses.overrides().end());
  TestCluster cluster(MustParse(kSmallConfig, overrides));
  std::vector<std::vector<float>> parameters(
      kWorkers, std::vector<float>(cluster.config().model().buffer_size()));
  RequireAllOk(cluster.RunWorkers([&](int rank, Exchange& exchange) {
    absl::Status status = exchange.Pull(absl::MakeSpan(parameters[rank]));
    for (int i = 0; i < iterations && status.ok(); ++i) {
      status = exchange.PushPull(i, TestGradient(cluster.config().model(), rank, i),
                                 absl::MakeSpan(parameters[rank]));
    }
    return status;
  }));
  return parameters[0];
}

TEST_CASE("a process dies, comes back, is filled and takes its slot again, and no bit differs") {
  const std::string optimizer = GENERATE("ADAM", "SGD");
  // The norm of the mean is about 44. With a bound of once the median, nearly half of the gradients
  // are limited.
  const std::string limit =
      GENERATE("update.clip_global_norm=0", "update.clip_global_norm=1", "update.max_norm=1");
  const std::vector<std::string> overrides = {
      "optimizer.kind=" + optimizer, "update.deterministic=true",    limit,
      "recovery.replicas=1",         "exchange.shared_memory=false", "limits.exchange_seconds=50"};
  constexpr int kEvents = 5;
  constexpr int kIterations = (kEvents + 1) * kPhase;
  ReplicatedRun run(overrides);
  const Model& model = run.config.model();

  std::atomic<int> allowed{0};
  std::atomic<int> reached[kWorkers] = {};
  std::vector<absl::Status> outcomes(kWorkers);
  std::vector<std::vector<float>> parameters(kWorkers, std::vector<float>(model.buffer_size()));
  std::vector<std::thread> workers;
  for (int rank = 0; rank < kWorkers; ++rank) {
    workers.emplace_back([&, rank] {
      auto exchange = Exchange::Connect(
          {.config = &run.config, .rank = rank, .view_link = run.worker_links[rank].get()});
      absl::Status status = exchange.status();
      if (status.ok()) status = (*exchange)->Pull(absl::MakeSpan(parameters[rank]));
      for (int i = 0; i < kIterations && status.ok(); ++i) {
        while (i >= allowed) absl::SleepFor(absl::Milliseconds(1));
        status = (*exchange)->PushPull(i, TestGradient(model, rank, i),
                                       absl::MakeSpan(parameters[rank]));
        reached[rank] = i + 1;
      }
      outcomes[rank] = status;
      reached[rank] = kIterations;
      if (exchange.ok()) (*exchange)->Leave(status).IgnoreError();
    });
  }
  run.Begin();
  // Lets the workers come to the middle of the next phase, and go on during the event.
  const auto train = [&] {
    allowed += kPhase;
    const int middle = allowed - kPhase / 2;
    AwaitTrue([&] { return reached[0] >= middle && reached[1] >= middle; });
  };

  train();
  run.servers[0].reset();  // dies
  run.Roles(0, 1, -1, false);
  run.Roles(1, 1, -1, false);
  run.Publish();
  train();
  run.StartServer(0);
  run.Roles(0, 1, 0, false);
  run.Roles(1, 1, 0, false);
  run.Publish();
  AwaitTrue([&] { return run.links[1]->state().filled_size() == 2; });
  run.Roles(0, 1, 0, true);
  run.Roles(1, 1, 0, true);
  run.Publish();
  train();
  run.view.mutable_slot(0)->set_handing_over(true);
  run.Publish();
  AwaitTrue([&] { return run.links[1]->state().handed_over_size() == 1; });
  run.Roles(0, 0, 1, true);
  run.Publish();
  train();
  run.servers[1].reset();  // the other one dies, and its slot passes to who was filled
  run.Roles(0, 0, -1, false);
  run.Roles(1, 0, -1, false);
  run.Publish();
  train();
  allowed = kIterations;
  for (int rank = 0; rank < kWorkers; ++rank) {
    AwaitTrue([&] { return run.worker_links[rank]->state().finished(); });
    run.view.mutable_worker(rank)->set_state(WorkerView::FINISHED);
  }
  run.view.set_finished(true);
  run.Publish();
  for (std::thread& worker : workers) worker.join();
  RequireAllOk(outcomes);
  const std::vector<float> expected =
      Undisturbed({"optimizer.kind=" + optimizer, "update.deterministic=true", limit}, kIterations);
  for (const std::vector<float>& actual : parameters) {
    for (const Tensor& tensor : model.tensors()) {
      REQUIRE(std::memcmp(actual.data() + tensor.offset, expected.data() + tensor.offset,
                          tensor.size * sizeof(float)) == 0);
    }
  }
}

}  // namespace
}  // namespace evenshard
