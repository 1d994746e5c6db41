#ifndef EVENSHARD_WORKER_COMPUTE_LAYER_HOOKS_H_
#define EVENSHARD_WORKER_COMPUTE_LAYER_HOOKS_H_

#include "absl/status/status.h"

namespace evenshard {

// A backend calls these functions while it trains on a batch, so that the parameters and gradients
// of one layer can be exchanged while another layer is computed. Layers are numbered as in
// Model::layers(), and layers without tensors are skipped. The calls come from the thread that
// trains. By default they do nothing.
class LayerHooks {
 public:
  virtual ~LayerHooks() = default;

  // Called before the pass reads the layer's parameters: once for each layer, front layers first,
  // and for all layers before any gradient is written. May block. An error ends the pass.
  virtual absl::Status AwaitParameters(int layer) { return absl::OkStatus(); }

  // Called once, when a device has been given the whole pass and the thread has nothing left to do
  // but wait. This is the time to load the next batch, which may reuse the current batch's memory.
  // Called before any GradientReady, and only by backends that compute asynchronously.
  virtual void PassQueued() {}

  // Called when the layer's gradients are in the buffer and the pass no longer reads the layer's
  // parameters, so that these may be overwritten. Called for back layers first. An error ends the
  // pass.
  virtual absl::Status GradientReady(int layer) { return absl::OkStatus(); }
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_LAYER_HOOKS_H_
