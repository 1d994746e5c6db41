// Compares every layer on CUDA with float64 and with the CPU backend, on fresh random numbers.

#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <utility>

#include "tests/worker/compute/cuda/cuda_net.h"
#include "tests/worker/compute/reference_net.h"

namespace evenshard {
namespace {

struct Case {
  const char* name;
  int64_t images;
  const char* spec;
};

const Case kCases[] = {
    {"linear", 5, R"(input { channels: 2 height: 3 width: 2 }
                     layer { name: "a" linear { out_features: 7 } }
                     layer { name: "b" linear { out_features: 4 bias: false } }
                     layer { name: "c" linear { out_features: 3 } })"},
    {"linear of packs", 4, R"(input { channels: 16 height: 1 width: 1 }
                              layer { name: "a" linear { out_features: 8 } }
                              layer { relu {} }
                              layer { name: "b" linear { out_features: 16 } })"},
    {"convolution", 3, R"(input { channels: 2 height: 7 width: 6 }
                          layer { name: "a" conv { out_channels: 3 kernel: 3 padding: 1 } }
                          layer { name: "b" conv { out_channels: 2 kernel: 3 stride: 2 padding: 1
                                                   bias: false } }
                          layer { name: "c" conv { out_channels: 3 kernel: 2 } }
                          layer { name: "d" linear { out_features: 3 } })"},
    {"convolution of packs and ReLU", 2,
     R"(input { channels: 8 height: 6 width: 5 }
        layer { name: "a" conv { out_channels: 16 kernel: 3 padding: 1 } }
        layer { relu {} }
        layer { name: "b" conv { out_channels: 8 kernel: 1 } }
        layer { relu {} }
        layer { name: "c" linear { out_features: 5 } })"},
    {"scores of a convolution", 2, R"(input { channels: 1 height: 3 width: 3 }
                                      layer { name: "a" conv { out_channels: 5 kernel: 3 } })"},
    {"max pooling", 3, R"(input { channels: 3 height: 8 width: 7 }
                          layer { name: "a" conv { out_channels: 4 kernel: 3 padding: 1 } }
                          layer { max_pool { kernel: 2 } }
                          layer { name: "b" conv { out_channels: 8 kernel: 1 } }
                          layer { max_pool { kernel: 3 stride: 2 padding: 1 } }
                          layer { name: "c" linear { out_features: 4 } })"},
    {"pooling first, ReLU alone", 3, R"(input { channels: 2 height: 6 width: 6 }
                                        layer { max_pool { kernel: 2 } }
                                        layer { relu {} }
                                        layer { name: "a" linear { out_features: 4 } })"},
    {"dropout", 4, R"(input { channels: 3 height: 4 width: 4 }
                      layer { name: "a" conv { out_channels: 8 kernel: 3 padding: 1 } }
                      layer { relu {} }
                      layer { name: "drop" dropout { p: 0.3 } }
                      layer { name: "b" linear { out_features: 8 } }
                      layer { relu {} }
                      layer { name: "drop2" dropout { p: 0.5 } }
                      layer { name: "c" linear { out_features: 4 } })"},
    {"batch normalisation", 5, R"(input { channels: 3 height: 5 width: 4 }
                                  layer { name: "a" conv { out_channels: 8 kernel: 3 bias: false } }
                                  layer { name: "n" batch_norm {} }
                                  layer { relu {} }
                                  layer { name: "b" conv { out_channels: 3 kernel: 2 bias: false } }
                                  layer { name: "m" batch_norm { momentum: 0.3 epsilon: 0.01 } }
                                  layer { name: "c" linear { out_features: 4 } })"},
    {"batch normalisation of the images", 6,
     R"(input { channels: 2 height: 3 width: 3 }
        layer { name: "n" batch_norm {} }
        layer { name: "a" linear { out_features: 3 } })"},
    {"average pooling", 3, R"(input { channels: 2 height: 6 width: 5 }
                              layer { name: "a" conv { out_channels: 6 kernel: 3 } }
                              layer { relu {} }
                              layer { global_avg_pool {} }
                              layer { name: "b" linear { out_features: 4 } })"},
    {"residual blocks", 4,
     R"(input { channels: 2 height: 6 width: 6 }
        layer { name: "a" conv { out_channels: 4 kernel: 3 padding: 1 } }
        layer { name: "block1" residual {
          body { name: "b" conv { out_channels: 4 kernel: 3 padding: 1 } }
          body { relu {} }
          body { name: "c" conv { out_channels: 4 kernel: 3 padding: 1 } } } }
        layer { name: "block2" residual {
          body { name: "d" conv { out_channels: 8 kernel: 3 stride: 2 padding: 1 bias: false } }
          body { name: "n" batch_norm {} }
          shortcut { name: "e" conv { out_channels: 8 kernel: 1 stride: 2 } } } }
        layer { name: "f" linear { out_features: 3 } })"},
    {"a branch that writes over its input", 3,
     R"(input { channels: 2 height: 5 width: 5 }
        layer { name: "a" conv { out_channels: 4 kernel: 3 padding: 1 } }
        layer { name: "block" residual {
          body { relu {} }
          body { name: "b" conv { out_channels: 4 kernel: 3 padding: 1 } } } }
        layer { name: "c" linear { out_features: 3 } })"},
};

// Returns a fresh seed. Tests that use it must print it when they fail.
uint64_t RandomSeed() { return std::random_device()(); }

CudaBackend::Options OptionsFor(const TestNet& net, Precision precision) {
  return {.batch_size = static_cast<int64_t>(net.labels.size()),
          .device = {.precision = precision},
          .seed = 7};
}

std::vector<float> ReferenceGradients(const TestNet& net, const ReferencePass& pass) {
  std::vector<float> gradients(net.model.buffer_size());
  for (const Tensor& tensor : net.model.tensors()) {
    if (tensor.role != TensorRole::kParameter) continue;
    const std::vector<double> gradient = ReferenceGradient(net, tensor, pass);
    std::copy(gradient.begin(), gradient.end(), gradients.begin() + tensor.offset);
  }
  return gradients;
}

double Loss(const TestNet& net, const ReferencePass& pass) {
  return ReferenceLoss(net, {net.parameters.begin(), net.parameters.end()}, pass);
}

constexpr ReferencePass kPass = {.training = true, .seed = 7, .iteration = 3};
constexpr ReferencePass kEvaluation = {.training = false};

// Returns the largest RelativeError of a tensor.
double WorstError(const Model& model, TensorRole least, absl::Span<const float> actual,
                  absl::Span<const float> expected) {
  double worst = 0;
  for (const Tensor& tensor : model.tensors()) {
    if (tensor.role > least) continue;
    INFO(tensor.name);
    worst = std::max(worst, RelativeError(actual.subspan(tensor.offset, tensor.size),
                                          expected.subspan(tensor.offset, tensor.size)));
  }
  return worst;
}

constexpr double kFloat32Error = 2e-5;
// Where float32 cannot tell an activation from 0, or from another one in its window, ReLU or max
// pooling may choose differently than in float64. This happens once in a thousand nets. Twice in a
// row is an error.
constexpr int kAttempts = 2;

TEST_CASE("every layer gives the loss and gradients of float64") {
  if (!HasDevice()) return;
  const Case& tested = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  CAPTURE(tested.name);
  double error = 1;
  for (int attempt = 0; attempt < kAttempts && error >= kFloat32Error; ++attempt) {
    const uint64_t seed = RandomSeed();
    CAPTURE(seed);
    const TestNet net(tested.spec, tested.images, seed);
    CudaNet cuda(net, OptionsFor(net, Compute::Cuda::FLOAT32));
    const Step step = cuda.Train(net.All(), kPass.iteration);
    CHECK(step.result.loss == Approx(Loss(net, kPass)).epsilon(1e-5));
    CHECK(cuda.Evaluate(net.All()).loss == Approx(Loss(net, kEvaluation)).epsilon(1e-5));
    error = WorstError(net.model, TensorRole::kParameter, step.gradients,
                       ReferenceGradients(net, kPass));
  }
  CHECK(error < kFloat32Error);
}

// Measures how far gradients agree in direction and length.
struct Likeness {
  double product = 0, squares = 0, expected_squares = 0;

  void Add(const Step& step, const std::vector<float>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      REQUIRE(std::isfinite(step.gradients[i]));
      if (expected[i] == 0) continue;  // a running statistic, or a gap
      product += step.gradients[i] * expected[i];
      squares += step.gradients[i] * step.gradients[i];
      expected_squares += expected[i] * expected[i];
    }
  }
  double cosine() const { return product / std::sqrt(squares * expected_squares); }
};

// With coarser products, a few maxima and a few sides of a ReLU come out differently. Single
// elements of the gradient then differ much, but its direction does not.
TEST_CASE("every layer's gradients keep the direction of float64's when products are coarser") {
  if (!HasDevice()) return;
  constexpr int kNets = 3;
  const Case& tested = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  CAPTURE(tested.name);
  Likeness tf32, bfloat16;
  for (int i = 0; i < kNets; ++i) {
    const uint64_t seed = RandomSeed();
    CAPTURE(seed);
    const TestNet net(tested.spec, tested.images, seed);
    const std::vector<float> expected = ReferenceGradients(net, kPass);
    const auto train = [&](Precision precision, double loss_error) {
      CudaNet cuda(net, OptionsFor(net, precision));
      const Step step = cuda.Train(net.All(), kPass.iteration);
      CHECK(step.result.loss == Approx(Loss(net, kPass)).epsilon(loss_error));
      CHECK(cuda.Evaluate(net.All()).loss == Approx(Loss(net, kEvaluation)).epsilon(loss_error));
      return step;
    };
    tf32.Add(train(Compute::Cuda::TF32, 5e-3), expected);
    bfloat16.Add(train(Compute::Cuda::BFLOAT16, 5e-2), expected);
  }
  CHECK(tf32.cosine() > 0.999);
  CHECK(bfloat16.cosine() > 0.97);
  CHECK(tf32.squares == Approx(tf32.expected_squares).epsilon(0.02));
  CHECK(bfloat16.squares == Approx(bfloat16.expected_squares).epsilon(0.2));
}

TEST_CASE("every layer gives what the CPU backend gives, running statistics included") {
  if (!HasDevice()) return;
  const Case& tested = GENERATE(from_range(std::begin(kCases), std::end(kCases)));
  CAPTURE(tested.name);
  double error = 1;
  for (int attempt = 0; attempt < kAttempts && error >= kFloat32Error; ++attempt) {
    const uint64_t seed = RandomSeed();
    CAPTURE(seed);
    const TestNet net(tested.spec, tested.images, seed);
    const auto cpu = MakeBackend(net.model, {.batch_size = tested.images, .seed = 7});
    CudaNet cuda(net, OptionsFor(net, Compute::Cuda::FLOAT32));
    const Step expected = RunStep(*cpu, net, net.All(), /*iteration=*/2);
    const Step step = cuda.Train(net.All(), /*iteration=*/2);
    CHECK(step.result.loss == Approx(expected.result.loss).epsilon(1e-5));
    CHECK(step.result.correct == expected.result.correct);
    error =
        WorstError(net.model, TensorRole::kRunningStatistic, step.gradients, expected.gradients);
  }
  CHECK(error < kFloat32Error);
}

// A NaN that disappears in a pooling layer would leave the loss finite.
TEST_CASE("max pooling passes a NaN on, wherever in the window it is") {
  if (!HasDevice()) return;
  // The second net's channels fill packs.
  const int channels = GENERATE(1, 8);
  const Precision precision = GENERATE(Compute::Cuda::FLOAT32, Compute::Cuda::BFLOAT16);
  CAPTURE(channels, precision);
  TestNet net("input { channels: " + std::to_string(channels) + R"( height: 3 width: 3 }
                 layer { max_pool { kernel: 3 } }
                 layer { name: "a" linear { out_features: 3 } })",
              1);
  CudaNet cuda(net, OptionsFor(net, precision));
  CHECK(std::isfinite(cuda.Evaluate(net.All()).loss));
  for (float& pixel : net.images) {
    CAPTURE(&pixel - net.images.data());
    const float number = std::exchange(pixel, std::nanf(""));
    const BatchResult result = cuda.Evaluate(net.All());
    CHECK(std::isnan(result.loss));
    CHECK(result.correct == 0);
    pixel = number;
  }
}

TEST_CASE("a score of minus infinity is that of an impossible class") {
  if (!HasDevice()) return;
  const Precision precision = GENERATE(Compute::Cuda::FLOAT32, Compute::Cuda::BFLOAT16);
  TestNet net(R"(input { channels: 1 height: 3 width: 3 }
                 layer { name: "a" linear { out_features: 3 } })",
              1);
  const int64_t bias = net.tensor("a/bias").offset + (net.All().labels[0] + 1) % 3;
  net.parameters[bias] = -INFINITY;
  CudaNet cuda(net, OptionsFor(net, precision));
  CHECK(std::isfinite(cuda.Evaluate(net.All()).loss));
  const Step step = cuda.Train(net.All());
  CHECK(std::isfinite(step.result.loss));
  CHECK(step.gradients[bias] == 0);
}

// Prefetches the next batch in each pass.
class PrefetchingHooks : public LayerHooks {
 public:
  PrefetchingHooks(CudaBackend* backend, Batch next) : backend_(*backend), next_(next) {}
  void PassQueued() override { backend_.Prefetch(next_); }

 private:
  CudaBackend& backend_;
  const Batch next_;
};

TEST_CASE("batches fetched ahead are those that are computed, with an evaluation in between") {
  if (!HasDevice()) return;
  const TestNet net(kCases[2].spec, 3), other(kCases[2].spec, 3, /*seed=*/2);
  CudaNet cuda(net, OptionsFor(net, Compute::Cuda::FLOAT32));
  const Batch batches[] = {net.All(), other.All(), other.FirstImages(2), net.All()};
  std::vector<Step> expected;
  for (const Batch& batch : batches) expected.push_back(cuda.Train(batch));
  const BatchResult evaluated = cuda.Evaluate(net.FirstImages(1));
  for (size_t i = 0; i < std::size(batches); ++i) {
    CAPTURE(i);
    PrefetchingHooks hooks(&cuda.backend(), batches[(i + 1) % std::size(batches)]);
    const Step step = cuda.Train(batches[i], /*iteration=*/0, hooks);
    CHECK(step.result.loss == expected[i].result.loss);
    CHECK(step.gradients == expected[i].gradients);
    CHECK(cuda.Evaluate(net.FirstImages(1)).loss == evaluated.loss);
  }
}

}  // namespace
}  // namespace evenshard
