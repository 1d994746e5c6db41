#ifndef EVENSHARD_BENCH_COMPUTE_COMPUTE_BENCH_H_
#define EVENSHARD_BENCH_COMPUTE_COMPUTE_BENCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/float_buffer.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"

namespace evenshard {

// The results of a forward and backward pass with the initial parameters of a run.
struct InitialPass {
  double loss = 0;
  double gradient_norm = 0;  // L2
};

// Measures a backend that computes the gradients of one batch again and again, without exchange. A
// backend that computes on a device copies the batch there in every iteration; parameters and
// gradients stay on the device. Not thread-safe.
class ComputeBench {
 public:
  // Creates the backend of `config`, the initial parameters of a run, and a batch of random images
  // whose pixels have mean 0 and variance 1. `config` and `clock` must outlive the result.
  // Errors: those of CreateComputeBackend and UseBuffers; RESOURCE_EXHAUSTED if there is not enough
  // memory; INVALID_ARGUMENT for the backend EMULATED, which computes nothing.
  static absl::StatusOr<std::unique_ptr<ComputeBench>> Create(const PlannedConfig& config,
                                                              const Clock* clock);

  // Checks that the backend computes gradients: if all scores are 0, the loss is that of guessing,
  // ln(classes); equal passes give equal gradients, but for rounding; a small step against the
  // gradient lowers the loss. Returns the results before that step.
  // Errors: INTERNAL, with what was found instead; those of the passes.
  absl::StatusOr<InitialPass> Verify();

  // Computes `iterations` passes and returns the images per second.
  // REQUIRES: iterations >= 1; Verify has succeeded.
  absl::StatusOr<double> ImagesPerSecond(int iterations);

 private:
  ComputeBench(const PlannedConfig& config, const Clock* clock) : config_(config), clock_(clock) {}

  Batch batch() const;
  // Runs a pass after telling the backend that all parameters have changed.
  absl::StatusOr<BatchResult> PassWithNewParameters();

  const PlannedConfig& config_;
  const Clock* const clock_;
  FloatBuffer parameters_, gradients_, images_;
  std::vector<int32_t> labels_;
  std::unique_ptr<ComputeBackend> backend_;  // last, because it may use the buffers
};

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_COMPUTE_COMPUTE_BENCH_H_
