// The large built-in models at their full size: about 1.4 GB and some seconds.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tests/worker/compute/test_net.h"

namespace ps {
namespace {

TEST_CASE("The built-in models give a finite loss and a gradient for every tensor") {
  const std::string name = GENERATE("mnist_mlp", "alexnet", "vgg16");
  CAPTURE(name);
  const TestNet net("builtin: \"" + name + "\"", 1);
  const auto backend = MakeBackend(net.model, {.threads = 2});
  const Step step = RunStep(*backend, net, net.All());
  CHECK(std::isfinite(step.result.loss));
  CHECK(step.result.loss > 0);
  for (const Tensor& tensor : net.model.tensors()) {
    CAPTURE(tensor.name);
    double squares = 0;
    for (int64_t i = 0; i < tensor.size; ++i) {
      const double gradient = step.gradients[tensor.offset + i];
      squares += gradient * gradient;
    }
    CHECK(std::isfinite(squares));
    CHECK(squares > 0);
  }
}

}  // namespace
}  // namespace ps
