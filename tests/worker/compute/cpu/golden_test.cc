// Compares the losses and gradients of whole networks with PyTorch's.

#include <catch2/catch.hpp>
#include <string>

#include "tests/worker/compute/cpu/golden_file.h"
#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

// PyTorch computes in float64. Sums of a few hundred float32 products have a smaller error than
// this.
constexpr double kTolerance = 1e-5;

TEST_CASE("loss and gradients equal PyTorch's") {
  const std::string name =
      GENERATE("mlp", "convolution", "pooling", "vector_channels", "large_kernel",
               "fully_convolutional", "batch_norm", "residual", "branches");
  const int threads = GENERATE(1, 2);
  CAPTURE(name, threads);
  const GoldenFile golden = ReadGoldenFile(name);
  const int64_t size = golden.labels.size();
  TestNet net(golden.model, size);
  net.images = golden.tensors.at("images");
  net.labels = golden.labels;
  for (const Tensor& tensor : net.model.tensors()) {
    const std::vector<float>& values = golden.tensors.at(tensor.name);
    REQUIRE(static_cast<int64_t>(values.size()) == tensor.size);
    net.Set(tensor.name, [&](int64_t i) { return values[i]; });
  }

  const auto backend = MakeBackend(net.model, {.batch_size = size, .threads = threads});
  const Step step = RunStep(*backend, net, net.All());
  CHECK(step.result.loss == Approx(golden.loss).epsilon(kTolerance));
  CHECK(step.result.correct == golden.correct);
  for (const Tensor& tensor : net.model.tensors()) {
    CAPTURE(tensor.name);
    const auto actual = absl::MakeConstSpan(step.gradients).subspan(tensor.offset, tensor.size);
    CHECK(RelativeError(actual, golden.tensors.at(tensor.name + "/gradient")) < kTolerance);
  }

  const absl::StatusOr<BatchResult> evaluated = backend->Evaluate(net.All(), net.parameters);
  REQUIRE(evaluated.ok());
  CHECK(evaluated->loss == Approx(golden.evaluation_loss).epsilon(kTolerance));
  CHECK(evaluated->correct == golden.evaluation_correct);
}

}  // namespace
}  // namespace evenshard
