// Runs the large built-in models at their full size, which takes about 2 GB and some seconds.

#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

TEST_CASE("the built-in models give a finite loss and a gradient for every tensor") {
  const std::string name = GENERATE("mnist_mlp", "alexnet", "vgg16", "resnet18", "resnet152");
  CAPTURE(name);
  const int64_t images = name.find("resnet") == 0 ? 2 : 1;
  const TestNet net("builtin: \"" + name + "\"", images);
  const auto backend = MakeBackend(net.model, {.batch_size = images, .threads = 2});
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
}  // namespace evenshard
