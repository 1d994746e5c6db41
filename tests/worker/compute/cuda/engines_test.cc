// Tests what cuDNN itself says to the convolutions that the CUDA backend requests, on devices that
// need not exist. See tests/testing/cuda/dnn_without_device.cc.

#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/placement/model/model.h"
#include "tests/testing/cuda/device.h"
#include "tests/worker/compute/test_net.h"
#include "worker/compute/cuda/convolution_plan.h"
#include "worker/compute/cuda/device.h"

namespace evenshard {
namespace {

// The first version of cuDNN that can be asked without a device.
constexpr size_t kFirstVersion = 90800;

bool CanAsk() {
  if (cudnnGetVersion() >= kFirstVersion) return true;
  std::printf(
      "SKIPPED: cuDNN is version %zu, and only %zu and later can be asked for engines "
      "without a device\n",
      cudnnGetVersion(), kFirstVersion);
  return false;
}

struct Case {
  int compute_major, compute_minor;
  Precision precision;
};

// Returns every generation that the kernels are compiled for, in each precision that it supports.
std::vector<Case> Cases() {
  std::vector<Case> cases = {{7, 5, Compute::Cuda::FLOAT32}, {7, 5, Compute::Cuda::TF32}};
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 6}, {8, 9}, {9, 0}}) {
    for (const Precision precision :
         {Compute::Cuda::FLOAT32, Compute::Cuda::TF32, Compute::Cuda::BFLOAT16}) {
      cases.push_back({major, minor, precision});
    }
  }
  return cases;
}

// Returns the names of the passes of `problem` for which there is no engine.
std::vector<std::string> PassesWithoutEngine(ConvolutionPlanner* planner,
                                             ConvolutionProblem problem) {
  alignas(64) static char memory[64];  // never accessed
  std::vector<std::string> missing;
  for (const auto pass :
       {ConvolutionProblem::kForward, ConvolutionProblem::kForwardBiasRelu,
        ConvolutionProblem::kInputGradient, ConvolutionProblem::kWeightGradient}) {
    problem.pass = pass;
    ConvolutionArguments arguments = {memory, memory, memory};
    if (pass == ConvolutionProblem::kForwardBiasRelu) arguments.bias = memory;
    if (!planner->TryPlan(problem, arguments).has_value()) missing.push_back(problem.ToString());
  }
  return missing;
}

CudaDevice::Options OptionsOf(const Case& on, bool deterministic) {
  return {.precision = on.precision,
          .workspace_bytes = size_t{1} << 30,  // the config's default
          .timed_engines = 1,
          .deterministic = deterministic};
}

TEST_CASE("cuDNN has engines for every pass of the built-in models' convolutions") {
  if (!CanAsk()) return;
  const Case on = GENERATE(from_range(Cases()));
  const bool deterministic = GENERATE(false, true);
  CAPTURE(on.compute_major, on.compute_minor, Compute::Cuda::Precision_Name(on.precision),
          deterministic);
  cuda_stand_in::Reset({.compute_major = on.compute_major, .compute_minor = on.compute_minor});
  CudaDevice device(OptionsOf(on, deterministic));
  ConvolutionPlanner planner(&device);
  for (const char* name : {"vgg16", "resnet18", "resnet50"}) {
    CAPTURE(name);
    const Model model = ParseModel("builtin: \"" + std::string(name) + "\"");
    for (const int64_t images : {1, 64}) {
      for (const Layer& layer : model.layers()) {
        if (!layer.spec.has_conv()) continue;
        const Conv2d& conv = layer.spec.conv();
        CHECK(PassesWithoutEngine(&planner, {.type = device.type(),
                                             .images = images,
                                             .input = layer.input,
                                             .output = layer.output,
                                             .kernel = conv.kernel(),
                                             .stride = conv.stride(),
                                             .padding = conv.padding()}) ==
              std::vector<std::string>{});
      }
    }
  }
}

TEST_CASE("cuDNN has engines for convolutions of any size") {
  if (!CanAsk()) return;
  const Case on = GENERATE(from_range(Cases()));
  CAPTURE(on.compute_major, on.compute_minor, Compute::Cuda::Precision_Name(on.precision));
  cuda_stand_in::Reset({.compute_major = on.compute_major, .compute_minor = on.compute_minor});
  CudaDevice device(OptionsOf(on, /*deterministic=*/true));
  ConvolutionPlanner planner(&device);
  const CounterRandom random(/*seed=*/1, /*stream=*/0);
  uint64_t drawn = 0;
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random.Below(drawn++, most - least + 1));
  };
  for (int i = 0; i < 50; ++i) {
    ConvolutionProblem problem;
    problem.type = device.type();
    problem.images = draw(1, 9);
    problem.kernel = draw(1, 7);
    problem.stride = draw(1, 3);
    problem.padding = draw(0, problem.kernel - 1);
    problem.input = {draw(1, 20), draw(problem.kernel, 30), draw(problem.kernel, 30)};
    const auto places = [&](int64_t size) {
      return (size + 2 * problem.padding - problem.kernel) / problem.stride + 1;
    };
    problem.output = {draw(1, 20), places(problem.input.height), places(problem.input.width)};
    CHECK(PassesWithoutEngine(&planner, problem) == std::vector<std::string>{});
  }
}

}  // namespace
}  // namespace evenshard
