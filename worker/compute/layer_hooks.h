#ifndef PS_WORKER_COMPUTE_LAYER_HOOKS_H_
#define PS_WORKER_COMPUTE_LAYER_HOOKS_H_

#include "absl/status/status.h"

namespace ps {

// What a backend tells while it trains on a batch, so that the exchange of one layer goes on
// while another is computed. Layers are numbered as in Model::layers(); those without tensors
// are passed over. Called from the thread that trains. The defaults do nothing.
class LayerHooks {
 public:
  virtual ~LayerHooks() = default;

  // Before the layer's parameters are read, front layers first; each layer once, and all of
  // them before any gradient is written. May block. An error ends the pass.
  virtual absl::Status AwaitParameters(int layer) { return absl::OkStatus(); }

  // A device has been told all of the pass, and the thread has only to wait for it: time to get the
  // next batch, whose memory may be this one's. Once, before any GradientReady, and only from
  // backends that compute beside the thread.
  virtual void PassQueued() {}

  // The layer's gradients are in the buffer, and this pass reads its parameters no more, so
  // that they may be overwritten. Back layers first. An error ends the pass.
  virtual absl::Status GradientReady(int layer) { return absl::OkStatus(); }
};

}  // namespace ps

#endif  // PS_WORKER_COMPUTE_LAYER_HOOKS_H_
