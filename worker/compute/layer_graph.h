#ifndef PS_WORKER_COMPUTE_LAYER_GRAPH_H_
#define PS_WORKER_COMPUTE_LAYER_GRAPH_H_

#include <vector>

#include "common/model.h"

namespace ps {

// Where a step's input comes from: the output of another step, of a fork the branch's.
struct GraphEdge {
  int step = kImages;
  int branch = 0;
};

// One step of a pass: a layer, or a fork, which hands an activation to several layers.
struct GraphStep {
  int layer = kImages;            // of a fork: whose output it hands on
  std::vector<GraphEdge> inputs;  // one; two for the end of a residual block
  // Of a fork: for each branch, whether the layer that takes it writes over it. Empty: a layer.
  std::vector<bool> overwritten;

  bool is_fork() const { return !overwritten.empty(); }
};

// The steps of a forward pass over `model` in their order; the last one gives the scores. The
// output of a layer, or a branch of a fork, is taken by one step alone.
std::vector<GraphStep> StepsOf(const Model& model);

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_LAYER_GRAPH_H_
