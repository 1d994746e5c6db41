#ifndef PS_WORKER_TRACED_HOOKS_H_
#define PS_WORKER_TRACED_HOOKS_H_

#include <cstdint>
#include <optional>

#include "worker/compute/layer_hooks.h"
#include "worker/trace.h"

namespace ps {

// Passes a backend's calls on and traces what lies between them: "wait" for a layer's
// parameters, its "forward" pass, its "backward" pass. The time of a layer without tensors counts
// to the one with tensors before it in the pass, and where the forward pass turns into the
// backward pass, at the loss, no call tells: "forward, loss and backward". Not thread-safe.
class TracedHooks final : public LayerHooks {
 public:
  // For one pass. All must outlive the hooks.
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
  std::optional<int> forward_;  // the layer that is computed, once there is one
  bool backward_ = false;
  absl::Time mark_;  // the end of the last call
};

}  // namespace ps

#endif  // PS_WORKER_TRACED_HOOKS_H_
