#ifndef EVENSHARD_TESTS_RECOVERY_ETCD_RUN_H_
#define EVENSHARD_TESTS_RECOVERY_ETCD_RUN_H_

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/control/etcd/etcd_client.h"
#include "common/control/etcd/etcd_keys.h"
#include "common/placement/planned_config.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "proto/view.pb.h"
#include "tests/common/control/etcd/etcd_server.h"
#include "tests/testing/await.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

// The parameters at the end of a run, by slot and chunk.
using FinalParameters = std::map<std::string, std::string>;

// Two shards and two workers, started by hand as a process manager on several machines would, with
// views in a real etcd. The gradients of a worker are always the same, but the rate falls, so that
// an update that is lost, made twice or made with another iteration's rate shows in the final
// parameters. REQUIRES: etcd is installed.
class EtcdRun {
 public:
  static constexpr int kIterations = 250;

  // `recovery`: further fields of it. Without views if it is nullopt.
  explicit EtcdRun(const std::optional<std::string>& recovery) { Configure(recovery); }

  void Configure(const std::optional<std::string>& recovery) {
    const std::string views =
        recovery.has_value() ? absl::StrCat("recovery { silence_seconds: 5 etcd { endpoint: \"",
                                            etcd.endpoint(), "\" } ", *recovery, " }")
                             : "";
    config_path = folder.Write("config.textproto", absl::StrCat(R"(
      model {
        input { channels: 1 height: 8 width: 8 }
        layer { name: "fc1" linear { out_features: 32 } }
        layer { relu {} }
        layer { name: "fc2" linear { out_features: 10 } }
      }
      partition { scheme: MEMORY_BASED }
      shard { address: "unix:)",
                                                                folder.Path("0.sock"), R"(" }
      shard { address: "unix:)",
                                                                folder.Path("1.sock"), R"(" }
      workers: 2
      update { policy: SYNC deterministic: true }
      optimizer { kind: MOMENTUM schedule { kind: STEP step_iterations: 1 gamma: 0.999 } }
      training { iterations: )",
                                                                kIterations, R"( }
      compute { backend: EMULATED emulated { device: "rtx_2080_ti" } }
      limits { chunk_bytes: 1024 exchange_seconds: 60 shutdown_seconds: 30 }
    )",
                                                                views));
    const auto loaded = PlannedConfig::Load(config_path, {});
    INFO(loaded.status().message());
    REQUIRE(loaded.ok());
    config = std::make_unique<PlannedConfig>(*loaded);
  }

  std::unique_ptr<Program> Start(const std::string& program, const std::string& place,
                                 std::vector<std::string> flags = {}) const {
    flags.insert(flags.begin(),
                 {program, place, "--config=" + config_path,
                  absl::StrCat("--set=compute.emulated.time_dilation=", time_dilation)});
    return std::make_unique<Program>(flags);
  }
  std::unique_ptr<Program> Ps(int index, const std::vector<std::string>& flags = {}) const {
    return Start("server/ps", absl::StrCat("--shard=", index), flags);
  }
  std::unique_ptr<Program> Worker(int rank, const std::vector<std::string>& flags = {}) const {
    return Start("worker/worker", absl::StrCat("--rank=", rank), flags);
  }
  void StartAll() {
    for (int i = 0; i < 2; ++i) ps[i] = Ps(i);
    for (int i = 0; i < 2; ++i) workers[i] = Worker(i);
  }

  // The latest view in etcd; number 0 if there is none.
  View ReadView() {
    EtcdClient client(etcd.patient());
    etcdserverpb::RangeRequest request;
    request.set_key(EtcdKeys("evenshard").view());
    const auto response = client.Range(request, {});
    INFO(response.status().message());
    REQUIRE(response.ok());
    View view;
    if (!response->kvs().empty()) REQUIRE(view.ParseFromString(response->kvs(0).value()));
    return view;
  }
  View AwaitView(const std::function<bool(const View&)>& condition) {
    View view;
    AwaitTrue([&] {
      absl::SleepFor(absl::Milliseconds(20));
      view = ReadView();
      return view.number() > 0 && condition(view);
    });
    return view;
  }
  // Which process keeps the views: "ps 1".
  std::string Coordinator() {
    EtcdClient client(etcd.patient());
    etcdserverpb::RangeRequest request;
    request.set_key(EtcdKeys("evenshard").coordinator());
    const auto response = client.Range(request, {});
    REQUIRE(response.ok());
    return response->kvs().empty() ? "" : response->kvs(0).value();
  }

  // Waits until the primary of a slot has taken this many iterations from a worker.
  void AwaitIteration(uint64_t iteration, int slot = 0) {
    AwaitTrue([&] {
      absl::SleepFor(absl::Milliseconds(10));
      const std::string address = AddressOf(slot);
      if (address.empty()) return false;
      GetStatsRequest request;
      request.set_slot(slot);
      ShardStats stats;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(1));
      if (!Admin::NewStub(Channel(address))->GetStats(&context, request, &stats).ok()) return false;
      INFO(stats.failure());
      REQUIRE(stats.failure().empty());
      return std::any_of(
          stats.worker().begin(), stats.worker().end(),
          [&](const WorkerStats& worker) { return worker.iteration() >= iteration; });
    });
  }

  // Waits for both workers to succeed, and returns the parameters.
  FinalParameters Finish() {
    for (auto& worker : workers) {
      const int code = worker->Wait();
      INFO(worker->output() << "\nps 0:\n" << Output(ps[0]) << "\nps 1:\n" << Output(ps[1]));
      REQUIRE(code == 0);
    }
    FinalParameters parameters;
    for (int slot = 0; slot < 2; ++slot) AwaitTrue([&] { return Pull(slot, &parameters); });
    return parameters;
  }
  // Ends the ps processes, which end well.
  void End() {
    for (auto& process : ps) {
      if (process == nullptr) continue;
      REQUIRE(kill(process->pid(), SIGTERM) == 0);
      const int code = process->Wait();
      INFO(process->output());
      CHECK(code == 0);
    }
  }

  const ScratchFolder folder;
  EtcdServer etcd;
  int time_dilation = 60000;  // makes the run last 2 s or so
  std::string config_path;
  std::unique_ptr<PlannedConfig> config;
  std::unique_ptr<Program> ps[2];
  std::unique_ptr<Program> workers[2];

 private:
  static std::shared_ptr<grpc::Channel> Channel(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }
  // Returns false if the slot cannot be read just now, as when its primary is yet to hear of etcd.
  bool Pull(int slot, FinalParameters* parameters) {
    PullRequest request;
    request.set_plan_fingerprint(config->plan().fingerprint());
    request.set_slot(slot);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    const auto stub = ParameterServer::NewStub(Channel(AddressOf(slot)));
    const auto stream = stub->Pull(&context, request);
    ParameterChunk chunk;
    while (stream->Read(&chunk)) {
      (*parameters)[absl::StrCat(slot, "/", chunk.chunk(), " version ", chunk.version())] =
          chunk.data();
    }
    const grpc::Status status = stream->Finish();
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) return false;
    INFO(status.error_message());
    REQUIRE(status.ok());
    return true;
  }
  static std::string Output(const std::unique_ptr<Program>& process) {
    return process == nullptr ? "" : process->output();
  }
  std::string AddressOf(int slot) {
    if (!config->proto().has_recovery()) return config->address(slot);
    const View view = ReadView();
    return view.number() == 0 ? "" : view.slot(slot).primary().address();
  }
};

// What a run without recovery ends with.
inline const FinalParameters& Undisturbed() {
  static const FinalParameters parameters = [] {
    EtcdRun run(std::nullopt);
    run.StartAll();
    return run.Finish();
  }();
  return parameters;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_RECOVERY_ETCD_RUN_H_
