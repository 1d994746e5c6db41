#include "worker/compute/layer_graph.h"

#include <utility>

namespace evenshard {
namespace {

bool OverwritesInput(const Layer& layer) {
  return layer.spec.has_relu() || layer.spec.has_dropout();
}

}  // namespace

std::vector<GraphStep> StepsOf(const Model& model) {
  const std::vector<Layer>& layers = model.layers();
  // Both vectors have an entry per layer, kImages first. `overwritten` holds, for each reader of
  // the layer's output, whether it overwrites its input. `outputs` holds the edge that the next
  // reader takes.
  std::vector<std::vector<bool>> overwritten(layers.size() + 1);
  for (const Layer& layer : layers) {
    for (const int input : layer.inputs) overwritten[input + 1].push_back(OverwritesInput(layer));
  }
  std::vector<GraphEdge> outputs(layers.size() + 1);

  std::vector<GraphStep> steps;
  const auto fork_if_shared = [&](int layer) {
    GraphEdge& output = outputs[layer + 1];
    if (overwritten[layer + 1].size() < 2) return;
    steps.push_back({layer, {output}, overwritten[layer + 1]});
    output = {static_cast<int>(steps.size()) - 1, /*branch=*/0};
  };
  const auto take = [&](int layer) {
    GraphEdge& output = outputs[layer + 1];
    const GraphEdge taken = output;
    ++output.branch;
    return taken;
  };
  fork_if_shared(kImages);
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    std::vector<GraphEdge> inputs;
    for (const int input : layers[i].inputs) inputs.push_back(take(input));
    steps.push_back({i, std::move(inputs), {}});
    outputs[i + 1] = {static_cast<int>(steps.size()) - 1, /*branch=*/0};
    fork_if_shared(i);
  }
  return steps;
}

}  // namespace evenshard
