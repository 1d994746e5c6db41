#include "worker/compute/layer_graph.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/worker/compute/test_net.h"

namespace evenshard {
namespace {

// Describes steps as "a(images)", "fork b(1)" or "c(2.1)": the layer, or the fork of a layer's
// output, and the inputs. An input is the number of a step and, if that is a fork, of its branch.
std::vector<std::string> Describe(const Model& model, const std::vector<GraphStep>& steps) {
  std::vector<std::string> texts;
  for (const GraphStep& step : steps) {
    std::string text = step.is_fork() ? "fork " : "";
    text += step.layer == kImages ? "images" : model.layers()[step.layer].name;
    for (size_t i = 0; i < step.inputs.size(); ++i) {
      const GraphEdge& edge = step.inputs[i];
      text += i == 0 ? "(" : ", ";
      text += edge.step == kImages ? "images" : std::to_string(edge.step);
      if (edge.step != kImages && steps[edge.step].is_fork()) {
        text += "." + std::to_string(edge.branch);
      }
    }
    texts.push_back(text + ")");
  }
  return texts;
}

TEST_CASE("a chain of layers has a step for each, in their order") {
  const Model model = ParseModel(R"(input { channels: 1 height: 2 width: 2 }
                                    layer { name: "a" linear { out_features: 3 } }
                                    layer { name: "r" relu {} }
                                    layer { name: "b" linear { out_features: 2 } })");
  CHECK(Describe(model, StepsOf(model)) == std::vector<std::string>{"a(images)", "r(0)", "b(1)"});
}

TEST_CASE("several layers that read one activation each get a branch of a fork") {
  const Model model = ParseModel(R"(
      input { channels: 2 height: 4 width: 4 }
      layer { name: "a" conv { out_channels: 2 kernel: 3 padding: 1 } }
      layer { name: "block" residual {
        body { name: "r" relu {} }
        body { name: "b" conv { out_channels: 2 kernel: 3 padding: 1 } }
        shortcut { name: "c" conv { out_channels: 2 kernel: 1 } } } }
      layer { name: "d" linear { out_features: 2 } })");
  const std::vector<GraphStep> steps = StepsOf(model);
  CHECK(Describe(model, steps) == std::vector<std::string>{"a(images)", "fork a(0)", "r(1.0)",
                                                           "b(2)", "c(1.1)", "block(3, 4)",
                                                           "d(5)"});
  // The ReLU works in place, so its branch needs a copy.
  CHECK(steps[1].overwritten == std::vector<bool>{true, false});
}

TEST_CASE("a block that begins with the images forks them") {
  const Model model = ParseModel(R"(
      input { channels: 2 height: 2 width: 2 }
      layer { name: "block" residual {
        body { name: "b" conv { out_channels: 2 kernel: 1 } } } }
      layer { name: "d" linear { out_features: 2 } })");
  CHECK(Describe(model, StepsOf(model)) ==
        std::vector<std::string>{"fork images(images)", "b(0.0)", "block(1, 0.1)", "d(2)"});
}

}  // namespace
}  // namespace evenshard
