#include "worker/compute/emulated_backend.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "tests/worker/compute/test_net.h"

namespace ps {
namespace {

constexpr char kNet[] = R"(input { channels: 3 height: 2 width: 2 }
                           layer { name: "fc" linear { out_features: 5 } })";

TEST_CASE("The first call fills the tensors with small values and the gaps with 0") {
  const TestNet net(kNet, 1);
  EmulatedBackend backend(net.model, 1);
  std::vector<float> gradients(net.model.buffer_size(), NAN);
  const auto result =
      backend.ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients));
  REQUIRE(result.ok());
  CHECK(result->loss == 0);
  CHECK(result->correct == 0);
  std::vector<float> rest = gradients;
  for (const Tensor& tensor : net.model.tensors()) {
    const auto begin = rest.begin() + tensor.offset;
    const auto [low, high] = std::minmax_element(begin, begin + tensor.size);
    CHECK(*low < *high);
    CHECK(*low >= -0.01f);
    CHECK(*high <= 0.01f);
    std::fill_n(begin, tensor.size, 0.0f);
  }
  CHECK(rest == std::vector<float>(rest.size(), 0.0f));

  EmulatedBackend same(net.model, 1), other(net.model, 2);
  CHECK(RunStep(same, net, net.All()).gradients == gradients);
  CHECK(RunStep(other, net, net.All()).gradients != gradients);
}

TEST_CASE("Later calls leave the buffer as it is, a new buffer is filled") {
  const TestNet net(kNet, 1);
  EmulatedBackend backend(net.model, 0);
  const Step first = RunStep(backend, net, net.All());
  std::vector<float> gradients(net.model.buffer_size());
  const auto run = [&] {
    return backend.ForwardBackward(net.All(), net.parameters, 1, absl::MakeSpan(gradients)).ok();
  };
  REQUIRE(run());
  CHECK(gradients == first.gradients);
  gradients[0] = 7;
  REQUIRE(run());
  CHECK(gradients[0] == 7);
}

TEST_CASE("A gradient buffer of the wrong size is refused") {
  const TestNet net(kNet, 1);
  EmulatedBackend backend(net.model, 0);
  std::vector<float> gradients(net.model.buffer_size() - 1);
  const auto result =
      backend.ForwardBackward(net.All(), net.parameters, 0, absl::MakeSpan(gradients));
  CHECK(result.status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Evaluation is as empty as training") {
  const TestNet net(kNet, 1);
  EmulatedBackend backend(net.model, 0);
  const auto result = backend.Evaluate(net.All(), net.parameters);
  REQUIRE(result.ok());
  CHECK(result->loss == 0);
}

}  // namespace
}  // namespace ps
