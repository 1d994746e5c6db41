// Tests the errors of a device, on the stand-in.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/testing/cluster.h"
#include "tests/testing/cuda/device.h"
#include "tests/worker/compute/cuda/cuda_net.h"
#include "worker/compute/cuda/backend.h"
#include "worker/training/trainer.h"

namespace evenshard {
namespace {

using Catch::Contains;
using cuda_stand_in::GetLive;
using cuda_stand_in::Live;
using cuda_stand_in::Reset;

constexpr char kSpec[] = R"(input { channels: 3 height: 8 width: 8 }
                            layer { name: "a" conv { out_channels: 8 kernel: 3 } }
                            layer { relu {} }
                            layer { name: "b" linear { out_features: 10 } })";

CudaBackend::Options Options(int64_t batch_size = 4) {
  return {.batch_size = batch_size, .device = {.workspace_bytes = size_t{4} << 20}};
}

absl::Status CreationError(const CudaBackend::Options& options) {
  return CudaBackend::Create(ParseModel(kSpec), options).status();
}

TEST_CASE("a machine without a device, or with another number, is named") {
  Reset({.devices = 0});
  CHECK(absl::IsFailedPrecondition(CreationError(Options())));
  CHECK_THAT(std::string(CreationError(Options()).message()),
             Contains("no CUDA device 0: this machine has 0"));
  Reset({.devices = 2});
  CudaBackend::Options third = Options();
  third.device.number = 2;
  CHECK(absl::IsFailedPrecondition(CreationError(third)));
  CHECK_THAT(std::string(CreationError(third).message()),
             Contains("no CUDA device 2: this machine has 2, numbers 0 to 1"));
  CHECK(GetLive() == Live{});
}

TEST_CASE("a driver or cuDNN that is too old, or no driver, is named with what is needed") {
  Reset({.driver_too_old = true, .driver_version = 12040});
  CHECK(absl::IsFailedPrecondition(CreationError(Options())));
  CHECK_THAT(std::string(CreationError(Options()).message()),
             Contains("driver is for CUDA 12.4, too old") && Contains("CUDA 13.0"));
  Reset({.driver_too_old = true, .driver_version = 0});
  CHECK_THAT(std::string(CreationError(Options()).message()), Contains("no NVIDIA driver"));
  Reset({.cudnn_version = 8907});
  CHECK(absl::IsFailedPrecondition(CreationError(Options())));
  CHECK_THAT(std::string(CreationError(Options()).message()),
             Contains("cuDNN is version 8907, too old") && Contains("90000"));
  CHECK(GetLive() == Live{});
}

TEST_CASE("a device that is too old, at all or for bfloat16, is named with what is needed") {
  Reset({.compute_major = 7, .compute_minor = 0});
  CHECK(absl::IsFailedPrecondition(CreationError(Options())));
  CHECK_THAT(std::string(CreationError(Options()).message()),
             Contains("has compute capability 7.0, and this program needs 7.5 or more"));
  Reset({.compute_major = 7, .compute_minor = 5});
  CudaBackend::Options bfloat16 = Options();
  bfloat16.device.precision = Compute::Cuda::BFLOAT16;
  CHECK(absl::IsFailedPrecondition(CreationError(bfloat16)));
  CHECK_THAT(std::string(CreationError(bfloat16).message()),
             Contains("CUDA device 0, ") && Contains("has compute capability 7.5, and "
                                                     "compute.cuda.precision BFLOAT16 needs 8.0"));
  bfloat16.device.precision = Compute::Cuda::TF32;
  CHECK(CreationError(bfloat16).ok());
  CHECK(GetLive() == Live{});
}

TEST_CASE("a batch that does not fit is refused with what it needs and what is free") {
  Reset({.memory_bytes = int64_t{64} << 20});
  const absl::Status error = CreationError(Options(/*batch_size=*/100000));
  CHECK(absl::IsResourceExhausted(error));
  CHECK_THAT(std::string(error.message()), Contains("training.batch_size 100000 needs ") &&
                                               Contains(" MiB of device memory; ") &&
                                               Contains("60 MiB of 64 MiB are free"));
  CudaBackend::Options workspace = Options();
  workspace.device.workspace_bytes = size_t{1} << 30;
  CHECK(absl::IsResourceExhausted(CreationError(workspace)));
  CHECK_THAT(std::string(CreationError(workspace).message()),
             Contains("compute.cuda.workspace_bytes"));
  CHECK(GetLive() == Live{});
}

TEST_CASE("batch sizes that no backend takes are refused") {
  Reset();
  CHECK(absl::IsInvalidArgument(CreationError(Options(0))));
}

TEST_CASE("batches, labels and buffers that do not fit the backend are refused") {
  Reset();
  const TestNet net(kSpec, 4);
  CudaNet cuda(net, Options());
  LayerHooks hooks;
  std::vector<float> other(net.model.buffer_size());
  const auto train = [&](const Batch& batch, absl::Span<const float> parameters) {
    return cuda.backend()
        .ForwardBackward(batch, parameters, 0, absl::MakeSpan(other), hooks)
        .status();
  };
  CHECK(absl::IsInvalidArgument(train({}, cuda.parameters())));
  CHECK(absl::IsInvalidArgument(train(net.All(), other)));
  Batch wrong = net.All();
  const std::vector<int32_t> labels = {0, 1, 2, 10};
  wrong.labels = labels;
  CHECK(absl::IsInvalidArgument(train(wrong, cuda.parameters())));
}

TEST_CASE("a layer whose parameters were not written whole is named") {
  Reset();
  const TestNet net(kSpec, 4);
  const auto backend = MakeCudaBackend(net.model, Options());
  std::vector<float> parameters(net.model.buffer_size()), gradients(parameters.size());
  const auto evaluate = [&] { return backend->Evaluate(net.All(), parameters).status(); };
  REQUIRE(
      backend->UseBuffers({.parameters = parameters, .gradients = absl::MakeSpan(gradients)}).ok());
  CHECK_THAT(std::string(evaluate().message()), Contains("a: the device has 0 of its 224"));
  const int64_t end = net.tensor("b/weight").offset;
  backend->ParametersWritten(0, end);
  CHECK_THAT(std::string(evaluate().message()), Contains("b: the device has 0 of its 2890"));
  backend->ParametersWritten(end, static_cast<int64_t>(parameters.size()) - end);
  CHECK(evaluate().ok());
}

TEST_CASE("a part of a layer that is written alone replaces that part on the device") {
  Reset();
  const TestNet net(kSpec, 4);
  std::vector<float> parameters(net.parameters.begin(), net.parameters.end());
  std::vector<float> gradients(parameters.size());
  const auto make = [&](absl::Span<const float> values, absl::Span<float> sums) {
    auto backend = MakeCudaBackend(net.model, Options());
    REQUIRE(backend->UseBuffers({.parameters = values, .gradients = sums}).ok());
    backend->ParametersWritten(0, static_cast<int64_t>(values.size()));
    return backend;
  };
  const auto loss = [&](CudaBackend& backend, absl::Span<const float> values) {
    const auto result = backend.Evaluate(net.All(), values);
    INFO(result.status());
    REQUIRE(result.ok());
    return result->loss;
  };
  const auto backend = make(parameters, absl::MakeSpan(gradients));
  const double before = loss(*backend, parameters);
  const Tensor& weight = net.tensor("b/weight");
  const int64_t half = weight.size / 2;
  for (int64_t i = 0; i < half; ++i) parameters[weight.offset + i] *= -2;
  backend->ParametersWritten(weight.offset, half);
  const double changed = loss(*backend, parameters);
  CHECK(changed != before);
  const std::vector<float> same = parameters;
  std::vector<float> others(same.size());
  CHECK(changed == loss(*make(same, absl::MakeSpan(others)), same));
  // Nothing of it is written again.
  CHECK(changed == loss(*backend, parameters));
}

TEST_CASE("the error of hooks ends a pass, and the next one is right") {
  Reset();
  const TestNet net(kSpec, 4);
  CudaNet cuda(net, Options());
  const Step expected = cuda.Train(net.All());
  std::vector<float> gradients(net.model.buffer_size());
  for (const std::string event : {"forward 2", "backward 0"}) {
    RecordedHooks failing(event);
    const auto failed = cuda.backend().ForwardBackward(net.All(), cuda.parameters(), 0,
                                                       absl::MakeSpan(gradients), failing);
    CHECK(absl::IsAborted(failed.status()));
    CHECK(cuda.Train(net.All()).gradients == expected.gradients);
  }
}

TEST_CASE("a device that is lost in the middle of anything gives an error and leaves nothing") {
  const TestNet net(kSpec, 4);
  const auto train_once = [&]() -> absl::Status {
    std::vector<float> parameters(net.model.buffer_size()), gradients(parameters.size());
    auto backend = CudaBackend::Create(net.model, Options());
    if (!backend.ok()) return backend.status();
    absl::Status used =
        (*backend)->UseBuffers({.parameters = parameters, .gradients = absl::MakeSpan(gradients)});
    if (!used.ok()) return used;
    (*backend)->ParametersWritten(0, static_cast<int64_t>(parameters.size()));
    LayerHooks hooks;
    return (*backend)
        ->ForwardBackward(net.All(), parameters, 0, absl::MakeSpan(gradients), hooks)
        .status();
  };
  Reset();
  REQUIRE(train_once().ok());
  const int64_t enqueues = cuda_stand_in::GetTotals().enqueues;
  REQUIRE(enqueues > 50);
  for (int64_t lost_at = 0; lost_at < enqueues; ++lost_at) {
    CAPTURE(lost_at);
    Reset();
    cuda_stand_in::LoseDevice(lost_at);
    const absl::Status error = train_once();
    CHECK(absl::IsUnavailable(error));
    CHECK_THAT(std::string(error.message()), Contains("the device was lost"));
    CHECK(GetLive() == Live{});
  }
}

TEST_CASE("a worker that loses its device says so to the shards, which keep what they have") {
  Reset();
  const PlannedConfig config =
      MustParse(kSmallConfig, {"compute.backend=CUDA", "workers=1", "training.iterations=50",
                               "training.batch_size=4", "data={synthetic {}}"});
  TestCluster cluster(config);
  const std::vector<float> before = cluster.Parameters();
  const RealClock clock;
  auto trainer = Trainer::Create({.config = &cluster.config(),
                                  .rank = 0,
                                  .clock = &clock,
                                  .addresses = cluster.addresses(),
                                  .progress = {.output = stderr},
                                  .create_backend = CudaBackendFromConfig});
  INFO(trainer.status());
  REQUIRE(trainer.ok());
  cuda_stand_in::LoseDevice(/*enqueues=*/500);
  const absl::Status outcome = (*trainer)->Run().status();
  CHECK(absl::IsUnavailable(outcome));
  CHECK_THAT(std::string(outcome.message()), Contains("the device was lost"));
  CHECK_THAT(std::string(cluster.Connect(0).status().message()),
             Contains("worker 0 gave up: ") && Contains("the device was lost"));
  const std::vector<float> trained = cluster.Parameters();
  CHECK(trained != before);
  for (const float parameter : trained) REQUIRE(std::isfinite(parameter));
}

TEST_CASE("workers take the config's devices in turn") {
  Reset({.devices = 3});
  const auto device_of = [](int rank, const std::string& cuda) {
    const PlannedConfig config =
        MustParse(kSmallConfig, {"compute.backend=CUDA", "workers=4", "data={synthetic {}}",
                                 "compute.cuda={" + cuda + "}"});
    auto backend = CudaBackendFromConfig(config, {.rank = rank});
    INFO(backend.status());
    REQUIRE(backend.ok());
    return (*backend)->Usage()->pci_bus_id;
  };
  CHECK(device_of(0, "") != device_of(1, ""));
  CHECK(device_of(0, "") == device_of(3, ""));
  CHECK(device_of(1, "device: 2 device: 0") == device_of(0, ""));
  CHECK(device_of(2, "device: 2 device: 0") == device_of(2, ""));
}

}  // namespace
}  // namespace evenshard
