#ifndef EVENSHARD_WORKER_TRAINING_TRACED_HOOKS_H_
#define EVENSHARD_WORKER_TRAINING_TRACED_HOOKS_H_

#include <cstdint>
#include <optional>

#include "worker/compute/layer_hooks.h"
#include "worker/trace/trace.h"

namespace evenshard {

// Forwards a backend's calls to other hooks and traces the time between them: "wait" for a layer's
// parameters, its "forward" pass and its "backward" pass. The backend makes no call for a layer
// without tensors, whose time therefore counts as that of the last layer with tensors before it in
// the model. It makes none at the loss either, so one span covers the last layer's "forward, loss
// and backward". Not thread-safe.
class TracedHooks final : public LayerHooks {
 public:
  // Traces one pass. `hooks` and `trace` must outlive this object.
  TracedHooks(LayerHooks* hooks, Trace* trace, int64_t iteration)
      : hooks_(hooks), trace_(trace), iteration_(iteration), mark_(trace->Now()) {}

  absl::Status AwaitParameters(int layer) override {
    const absl::Time asked = trace_->Now();
    if (forward_.has_value())
      trace_->Span(Trace::Row::kThread, "forward", *forward_, iteration_, mark_, asked);
    forward_ = layer;
    absl::Status status = hooks_->AwaitParameters(layer);
    mark_ = trace_->Now();
    trace_->Span(Trace::Row::kThread, "wait", layer, iteration_, asked, mark_);
    return status;
  }

  void PassQueued() override { hooks_->PassQueued(); }

  absl::Status GradientReady(int layer) override {
    trace_->Span(Trace::Row::kThread, backward_ ? "backward" : "forward, loss and backward", layer,
                 iteration_, mark_, trace_->Now());
    backward_ = true;
    absl::Status status = hooks_->GradientReady(layer);
    mark_ = trace_->Now();
    return status;
  }

 private:
  LayerHooks* const hooks_;
  Trace* const trace_;
  const int64_t iteration_;
  std::optional<int> forward_;  // the layer in its forward pass, if any yet
  bool backward_ = false;
  absl::Time mark_;  // end of the last call
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_TRACED_HOOKS_H_
