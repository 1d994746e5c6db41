// Tests workers with the CUDA backend in a cluster: the exchange overlaps with the device's work.

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/clock.h"
#include "nlohmann/json.hpp"
#include "tests/testing/cluster.h"
#include "tests/testing/scratch_folder.h"
#include "tests/worker/compute/cuda/cuda_net.h"
#include "worker/compute/cuda/backend.h"
#include "worker/training/trainer.h"

namespace evenshard {
namespace {

using Catch::Contains;

constexpr char kConfig[] = R"(
  model {
    input { channels: 3 height: 8 width: 8 }
    layer { name: "conv1" conv { out_channels: 8 kernel: 3 padding: 1 } }
    layer { relu {} }
    layer { max_pool { kernel: 2 } }
    layer { name: "block" residual {
      body { name: "conv2" conv { out_channels: 8 kernel: 3 padding: 1 bias: false } }
      body { name: "norm" batch_norm {} } } }
    layer { name: "fc1" linear { out_features: 64 } }
    layer { relu {} }
    layer { dropout { p: 0.2 } }
    layer { name: "fc2" linear { out_features: 10 } }
  }
  partition { scheme: MEMORY_BASED }
  shard { address: "127.0.0.1:0" }
  shard { address: "127.0.0.1:0" }
  workers: 2
  update { policy: SYNC deterministic: true }
  optimizer { kind: MOMENTUM learning_rate: 0.05 }
  training { iterations: 4 batch_size: 8 }
  data { synthetic { images: 256 } holdout: 0.25 }
  compute { backend: CUDA cuda { precision: FLOAT32 workspace_bytes: 16777216 } }
  limits { chunk_bytes: 1024 startup_seconds: 20 exchange_seconds: 60 shutdown_seconds: 5 }
)";

// The outcome of a run.
struct Outcome {
  std::vector<absl::Status> workers;
  std::vector<float> parameters;  // as the shards hold them
};

// Runs all workers of a config in this process.
Outcome Run(const PlannedConfig& config, Trace* trace_of_worker_0 = nullptr) {
  TestCluster cluster(config);
  const RealClock clock;
  Outcome outcome;
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (int rank = 0; rank < config.workers(); ++rank) {
    Trainer::Options options = {.config = &cluster.config(),
                                .rank = rank,
                                .clock = &clock,
                                .addresses = cluster.addresses(),
                                .progress = {.output = stderr},
                                .trace = rank == 0 ? trace_of_worker_0 : nullptr};
    if (config.proto().compute().backend() == Compute::CUDA) {
      options.create_backend = CudaBackendFromConfig;
    }
    auto trainer = Trainer::Create(options);
    INFO(trainer.status());
    REQUIRE(trainer.ok());
    trainers.push_back(*std::move(trainer));
  }
  outcome.workers.resize(trainers.size(), absl::UnknownError("did not run"));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < trainers.size(); ++rank) {
    threads.emplace_back([&, rank] { outcome.workers[rank] = trainers[rank]->Run().status(); });
  }
  for (std::thread& thread : threads) thread.join();
  outcome.parameters = cluster.Parameters();
  return outcome;
}

TEST_CASE("schedules and partitions give bit-equal parameters on CUDA") {
  if (!HasDevice()) return;
  const auto trained = [](const std::string& schedule, const std::string& scheme) {
    const Outcome outcome =
        Run(MustParse(kConfig, {"exchange.schedule=" + schedule, "partition.scheme=" + scheme}));
    RequireAllOk(outcome.workers);
    return outcome.parameters;
  };
  const std::vector<float> sequential = trained("SEQUENTIAL", "MEMORY_BASED");
  CHECK(trained("BACKWARD", "MEMORY_BASED") == sequential);
  CHECK(trained("FULL", "MEMORY_BASED") == sequential);
  CHECK(trained("FULL", "LAYER_BASED") == sequential);
}

TEST_CASE("training on CUDA is training on the CPU") {
  if (!HasDevice()) return;
  const Outcome cuda = Run(MustParse(kConfig));
  RequireAllOk(cuda.workers);
  const PlannedConfig config = MustParse(kConfig, {"compute={backend: CPU}"});
  const Outcome cpu = Run(config);
  RequireAllOk(cpu.workers);
  for (const Tensor& tensor : config.model().tensors()) {
    CAPTURE(tensor.name);
    const auto part = [&](const Outcome& of) {
      return absl::MakeConstSpan(of.parameters).subspan(tensor.offset, tensor.size);
    };
    CHECK(RelativeError(part(cuda), part(cpu)) < 1e-4);
  }
}

TEST_CASE("asynchronous workers train on CUDA") {
  if (!HasDevice()) return;
  const Outcome outcome =
      Run(MustParse(kConfig, {"update.policy=ASYNC", "update.deterministic=false"}));
  RequireAllOk(outcome.workers);
  for (const float parameter : outcome.parameters) REQUIRE(std::isfinite(parameter));
}

TEST_CASE("a trace shows what the device and its copies do, layer by layer") {
  if (!HasDevice()) return;
  const ScratchFolder folder;
  const std::string path = folder.Path("trace.json");
  const PlannedConfig config = MustParse(kConfig);
  const RealClock clock;
  auto trace = Trace::Create(path, /*rank=*/0, &config.model(), &clock);
  REQUIRE(trace.ok());
  RequireAllOk(Run(config, trace->get()).workers);
  REQUIRE((*trace)->Close().ok());
  const nlohmann::json events = nlohmann::json::parse(std::ifstream(path));
  const auto count = [&](const std::string& name) {
    return std::count_if(events.begin(), events.end(), [&](const nlohmann::json& event) {
      return event["name"] == name && event["ph"] == "X" && event["dur"].get<double>() >= 0 &&
             event["tid"].get<int>() > 0;
    });
  };
  for (const std::string layer : {"conv1", "conv2", "norm", "fc1", "fc2"}) {
    CAPTURE(layer);
    CHECK(count("forward " + layer) == 4);
    CHECK(count("backward " + layer) == 4);
    CHECK(count("from the device " + layer) == 4);
    CHECK(count("to the device " + layer) >= 4);
  }
}

}  // namespace
}  // namespace evenshard
