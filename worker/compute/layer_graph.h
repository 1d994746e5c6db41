#ifndef EVENSHARD_WORKER_COMPUTE_LAYER_GRAPH_H_
#define EVENSHARD_WORKER_COMPUTE_LAYER_GRAPH_H_

#include <vector>

#include "common/placement/model/model.h"

namespace evenshard {

// The input of a step: the output of an earlier step, or, if that step is a fork, one of its
// branches.
struct GraphEdge {
  int step = kImages;
  int branch = 0;
};

// One step of a pass: a layer, or a fork, which hands one activation to several layers.
struct GraphStep {
  int layer = kImages;            // for a fork, the layer whose output it hands on
  std::vector<GraphEdge> inputs;  // one; two for the end of a residual block
  // For a fork: whether the layer that reads a branch overwrites it, by branch. Empty for a layer.
  std::vector<bool> overwritten;

  bool is_fork() const { return !overwritten.empty(); }
};

// Returns the steps of a forward pass over `model`, in order. The last step gives the scores.
// Exactly one step reads the output of each layer and each branch of a fork.
std::vector<GraphStep> StepsOf(const Model& model);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_LAYER_GRAPH_H_
