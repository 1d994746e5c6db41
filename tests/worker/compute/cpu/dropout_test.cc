// Tests dropout by its effect on a network. The dropout layer is followed by one linear layer of
// ones. The gradient with respect to that layer's weights is what dropout let through, times the
// gradient with respect to the scores.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

// Makes a net whose scores are both 0, so that the gradient with respect to them is 0.5 and -0.5.
TestNet DropoutNet(const std::string& p, int64_t images = 1) {
  TestNet net("input { channels: 10000 height: 1 width: 1 } layer { dropout { p: " + p +
                  " } } layer { name: \"fc\" linear { out_features: 2 } }",
              images);
  for (float& value : net.images) value = 1;
  for (float& value : net.parameters) value = 0;
  for (int32_t& label : net.labels) label = 1;
  return net;
}

// Returns what a dropout layer makes of an image of ones.
std::vector<float> Dropped(const TestNet& net, const CpuBackend::Options& options,
                           int64_t iteration) {
  const auto backend = MakeBackend(net.model, options);
  const Step step = RunStep(*backend, net, net.FirstImages(1), iteration);
  const Tensor& weight = net.tensor("fc/weight");
  std::vector<float> values(step.gradients.begin() + weight.offset,
                            step.gradients.begin() + weight.offset + 10000);
  for (float& value : values) value *= 2;
  return values;
}

TEST_CASE("dropout drops the fraction p and scales the rest by 1/(1-p)") {
  const auto [text, p] = GENERATE(table<std::string, double>({{"0.1", 0.1}, {"0.5", 0.5}}));
  CAPTURE(p);
  int dropped = 0;
  for (const float value : Dropped(DropoutNet(text), {}, 0)) {
    if (value == 0) {
      ++dropped;
    } else {
      REQUIRE(value == Approx(1 / (1 - p)));
    }
  }
  // The margin is five standard deviations of the binomial distribution.
  CHECK(std::abs(dropped - 10000 * p) < 5 * std::sqrt(10000 * p * (1 - p)));
}

TEST_CASE("dropout with p = 0 drops nothing") {
  CHECK(Dropped(DropoutNet("0"), {}, 0) == std::vector<float>(10000, 1.0f));
}

TEST_CASE("the mask follows from seed, rank and iteration") {
  const TestNet net = DropoutNet("0.5");
  const std::vector<float> mask = Dropped(net, {.seed = 3, .rank = 1}, 7);
  CHECK(Dropped(net, {.seed = 3, .rank = 1}, 7) == mask);
  CHECK(Dropped(net, {.batch_size = 3, .threads = 2, .seed = 3, .rank = 1}, 7) == mask);

  // Independent masks agree in about half of their elements.
  const auto agreement = [&](const std::vector<float>& other) {
    int same = 0;
    for (size_t i = 0; i < mask.size(); ++i) same += mask[i] == other[i];
    return same;
  };
  CHECK(agreement(Dropped(net, {.seed = 4, .rank = 1}, 7)) == Approx(5000).margin(250));
  CHECK(agreement(Dropped(net, {.seed = 3, .rank = 2}, 7)) == Approx(5000).margin(250));
  CHECK(agreement(Dropped(net, {.seed = 3, .rank = 1}, 8)) == Approx(5000).margin(250));
}

TEST_CASE("images of a batch, and layers of a model, have masks of their own") {
  TestNet net(R"(input { channels: 1 height: 1 width: 1 }
                 layer { name: "a" linear { out_features: 500 bias: false } }
                 layer { dropout { p: 0.5 } } layer { dropout { p: 0.5 } }
                 layer { name: "b" linear { out_features: 2 } })",
              2);
  net.images = {1, 1};
  net.labels = {1, 1};
  net.Set("a/weight", [](int64_t) { return 1.0f; });
  net.Set("b/weight", [](int64_t) { return 0.0f; });
  net.Set("b/bias", [](int64_t) { return 0.0f; });
  const auto backend = MakeBackend(net.model, {.batch_size = 2});
  const Step step = RunStep(*backend, net, net.All());
  // Each image that both layers keep adds 4 * 0.5 / 2. The probability that they keep both images
  // is 1/16, and that they keep exactly one of them 6/16.
  const Tensor& weight = net.tensor("b/weight");
  int both = 0, one = 0;
  for (int i = 0; i < 500; ++i) {
    const float gradient = step.gradients[weight.offset + i];
    REQUIRE((gradient == 0 || gradient == Approx(1) || gradient == Approx(2)));
    both += gradient == Approx(2);
    one += gradient == Approx(1);
  }
  CHECK(both == Approx(500 / 16.0).margin(25));
  CHECK(one == Approx(500 * 6 / 16.0).margin(50));
}

TEST_CASE("evaluation drops nothing") {
  TestNet net = DropoutNet("0.5");
  net.Set("fc/weight", [](int64_t i) { return i < 10000 ? 0.0f : 0x1p-13f; });
  const auto backend = MakeBackend(net.model, {});
  const auto result = backend->Evaluate(net.All(), net.parameters);
  REQUIRE(result.ok());
  CHECK(result->loss == Approx(std::log(1 + std::exp(-10000 * 0x1p-13))));
}

}  // namespace
}  // namespace evenshard
