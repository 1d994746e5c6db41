#ifndef EVENSHARD_WORKER_TRAINING_LOCAL_MODEL_H_
#define EVENSHARD_WORKER_TRAINING_LOCAL_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/float_buffer.h"
#include "common/optimizer/tensor_optimizers.h"
#include "common/placement/planned_config.h"
#include "worker/exchange/core/worker_state/worker_state.h"

namespace evenshard {

// The model of a worker with local steps, which it trains by itself with an optimizer of its own
// (config.local.optimizer). The buffers are laid out as Model defines. Not thread-safe.
class LocalModel {
 public:
  // Everything is zero. `config`, which has `local`, must outlive the model. Errors:
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<LocalModel>> Create(const PlannedConfig& config);

  absl::Span<float> parameters() { return parameters_.span(); }
  absl::Span<float> gradients() { return gradients_.span(); }

  // Takes the optimizer's step by the gradients, those of a batch. The schedule of the learning
  // rate goes by `iteration`, counted from 0. Running statistics have what was pushed of them
  // subtracted.
  void Step(int64_t iteration);

  // Whether the worker has joined a run under way and not taken part in a round yet. Its optimizer
  // begins anew then, unless it gets another worker's state.
  bool is_joining() const { return is_joining_; }
  void set_joining(bool is_joining) { is_joining_ = is_joining; }

  // The optimizer's state, to send, and where another worker's goes. Errors: INVALID_ARGUMENT if
  // the text is not that of a state.
  WorkerState state();
  absl::StatusOr<WorkerState::Memory> PlaceState(const std::string& text);
  // The optimizer begins anew.
  void ForgetState();

 private:
  explicit LocalModel(const PlannedConfig& config);

  const Model& model_;
  const TensorOptimizers optimizers_;
  FloatBuffer parameters_;
  FloatBuffer gradients_;
  std::vector<FloatBuffer> slots_;  // the optimizer's state
  int64_t updates_ = 0;
  bool is_joining_ = false;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_LOCAL_MODEL_H_
