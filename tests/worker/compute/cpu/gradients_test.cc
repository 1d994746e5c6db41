// Compares the gradient of every layer type with central finite differences of the loss.
//
// The loss is summed in float64 from float32 scores. With a step of 1/256, the rounding of the
// scores (about 1e-7) adds an error of about 3e-5 to a difference, and the third derivative adds
// less than 1e-5. The networks are made so that no step crosses a kink of ReLU or of max pooling.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

constexpr float kStep = 1.0f / 256;
constexpr double kTolerance = 2e-4;

// Compares the gradient with respect to every parameter of `net`. Each tensor's gradient must be
// well above the tolerance, since the comparison would otherwise prove nothing.
void CheckGradients(TestNet net) {
  const int64_t size = net.labels.size();
  const auto backend = MakeBackend(net.model, {.batch_size = size});
  const auto loss = [&] { return RunStep(*backend, net, net.All()).result.loss; };
  const Step step = RunStep(*backend, net, net.All());
  for (const Tensor& tensor : net.model.tensors()) {
    if (tensor.role != TensorRole::kParameter) continue;
    CAPTURE(tensor.name);
    double largest = 0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      CAPTURE(i);
      float& parameter = net.parameters[tensor.offset + i];
      const float before = parameter;
      const float high = parameter = before + kStep;
      const double above = loss();
      const float low = parameter = before - kStep;
      const double below = loss();
      parameter = before;
      const double expected = (above - below) / (double{high} - low);
      largest = std::max(largest, std::abs(expected));
      CHECK(step.gradients[tensor.offset + i] == Approx(expected).margin(kTolerance).epsilon(0));
    }
    CHECK(largest > 100 * kTolerance);
  }
}

TEST_CASE("the gradient of linear layers equals finite differences") {
  CheckGradients(TestNet(R"(input { channels: 2 height: 2 width: 1 }
                            layer { name: "a" linear { out_features: 5 } }
                            layer { name: "b" linear { out_features: 4 bias: false } }
                            layer { name: "c" linear { out_features: 3 } })",
                         3));
}

TEST_CASE("the gradient of convolutions equals finite differences") {
  CheckGradients(TestNet(R"(input { channels: 2 height: 7 width: 6 }
                            layer { name: "a" conv { out_channels: 3 kernel: 3 padding: 1 } }
                            layer { name: "b" conv { out_channels: 2 kernel: 3 stride: 2
                                                     padding: 1 bias: false } }
                            layer { name: "c" conv { out_channels: 3 kernel: 2 } }
                            layer { name: "d" linear { out_features: 3 } })",
                         2));
}

TEST_CASE("the gradient of a convolution of whole vectors of channels equals differences") {
  CheckGradients(TestNet(R"(input { channels: 1 height: 4 width: 4 }
                            layer { name: "a" conv { out_channels: 16 kernel: 2 } }
                            layer { name: "b" conv { out_channels: 17 kernel: 2 } }
                            layer { name: "c" conv { out_channels: 3 kernel: 2 } })",
                         2));
}

// Half of the units are always on and half always off: their weights contribute little compared
// with their biases.
TEST_CASE("the gradient of ReLU equals finite differences, and is 0 for inputs below 0") {
  TestNet net(R"(input { channels: 2 height: 4 width: 4 }
                 layer { name: "a" conv { out_channels: 4 kernel: 3 } }
                 layer { relu {} }
                 layer { name: "b" linear { out_features: 6 } }
                 layer { relu {} }
                 layer { name: "c" linear { out_features: 3 } })",
              2);
  for (const std::string name : {"a", "b"}) {
    const Tensor& weight = net.tensor(name + "/weight");
    for (int64_t i = 0; i < weight.size; ++i) net.parameters[weight.offset + i] *= 0.25f;
    net.Set(name + "/bias", [](int64_t i) { return i % 2 == 0 ? 1.0f : -1.0f; });
  }
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  const Step step = RunStep(*backend, net, net.All());
  for (const std::string name : {"a/bias", "b/bias"}) {
    const Tensor& bias = net.tensor(name);
    for (int64_t i = 0; i < bias.size; ++i) {
      CAPTURE(name, i);
      CHECK((step.gradients[bias.offset + i] == 0) == (i % 2 == 1));
    }
  }
  CheckGradients(net);
}

// The images hold distinct numbers, and the convolution only scales and shifts them, so a step
// never changes which number is the largest.
TEST_CASE("the gradient of max pooling equals finite differences") {
  const std::string pool = GENERATE("kernel: 2", "kernel: 3 stride: 2", "kernel: 3 stride: 1",
                                    "kernel: 3 stride: 2 padding: 1", "kernel: 4 stride: 3");
  CAPTURE(pool);
  const std::string channels = GENERATE("3", "16");
  TestNet net(
      "input { channels: 1 height: 7 width: 6 } "
      "layer { name: \"a\" conv { out_channels: " +
          channels +
          " kernel: 1 } } "
          "layer { max_pool { " +
          pool +
          " } } "
          "layer { name: \"b\" linear { out_features: 4 } }",
      2);
  for (size_t i = 0; i < net.images.size(); ++i) net.images[i] = (i * 37 % 101) * 0.05f - 2.5f;
  net.Set("a/weight", [](int64_t i) { return (i % 2 == 0 ? 0.5f : -0.5f) - 0.1f * (i % 3); });
  CheckGradients(net);
}

// All steps of the comparison use the same iteration, and thus the same mask.
TEST_CASE("the gradient of dropout equals finite differences") {
  CheckGradients(TestNet(R"(input { channels: 2 height: 4 width: 4 }
                            layer { name: "a" conv { out_channels: 18 kernel: 3 } }
                            layer { dropout { p: 0.25 } }
                            layer { name: "b" linear { out_features: 12 } }
                            layer { dropout { p: 0.5 } }
                            layer { name: "c" linear { out_features: 3 } })",
                         2));
}

// ReLU and dropout both work in place, in the same memory.
TEST_CASE("the gradient of ReLU followed by dropout equals finite differences") {
  TestNet net(R"(input { channels: 4 height: 1 width: 1 }
                 layer { name: "a" linear { out_features: 12 } }
                 layer { relu {} }
                 layer { dropout { p: 0.5 } }
                 layer { name: "b" linear { out_features: 3 } })",
              2);
  const Tensor& weight = net.tensor("a/weight");
  for (int64_t i = 0; i < weight.size; ++i) net.parameters[weight.offset + i] *= 0.25f;
  net.Set("a/bias", [](int64_t i) { return i % 2 == 0 ? 1.0f : -1.0f; });
  CheckGradients(net);
}

TEST_CASE("the gradients of batch normalisation and average pooling equal finite differences") {
  const std::string channels = GENERATE("3", "16", "18");
  CAPTURE(channels);
  TestNet net(
      "input { channels: 2 height: 5 width: 4 } "
      "layer { name: \"a\" conv { out_channels: " +
          channels +
          " kernel: 2 bias: false } } "
          "layer { name: \"n\" batch_norm { epsilon: 0.01 } } "
          "layer { name: \"b\" conv { out_channels: 6 kernel: 2 } } "
          "layer { global_avg_pool {} } "
          "layer { name: \"c\" linear { out_features: 4 } }",
      3);
  // The gradient with respect to the input of a normalisation grows as the input shrinks.
  const Tensor& weight = net.tensor("a/weight");
  for (int64_t i = 0; i < weight.size; ++i) net.parameters[weight.offset + i] *= 0.7f;
  CheckGradients(net);
}

// The bias of each block's body keeps all sums at the block's end well above or well below 0.
TEST_CASE("the gradient of residual blocks equals finite differences") {
  TestNet net(R"(input { channels: 2 height: 5 width: 4 }
                 layer { name: "a" conv { out_channels: 4 kernel: 2 } }
                 layer { residual {
                   body { name: "b" conv { out_channels: 4 kernel: 3 padding: 1 } } } }
                 layer { residual {
                   body { name: "c" conv { out_channels: 6 kernel: 3 padding: 1 stride: 2 } }
                   shortcut { name: "s" conv { out_channels: 6 kernel: 1 stride: 2 } } } }
                 layer { name: "d" linear { out_features: 3 } })",
              2);
  for (const std::string name : {"a", "b", "c", "s"}) {
    const Tensor& weight = net.tensor(name + "/weight");
    for (int64_t i = 0; i < weight.size; ++i) net.parameters[weight.offset + i] *= 0.25f;
  }
  for (const std::string name : {"b", "c"}) {
    net.Set(name + "/bias", [](int64_t i) { return i % 2 == 0 ? 3.0f : -3.0f; });
  }
  CheckGradients(net);
}

}  // namespace
}  // namespace evenshard
