#ifndef PS_BENCH_COMPUTE_BENCH_H_
#define PS_BENCH_COMPUTE_BENCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/config.h"
#include "common/float_buffer.h"
#include "worker/compute/backend.h"

namespace ps {

// With the parameters that a run begins with.
struct InitialPass {
  double loss = 0;
  double gradient_norm = 0;
};

// A backend that computes the gradients of one batch again and again, without exchange: where it
// computes on a device, the batch goes there in every iteration, parameters and gradients stay
// there. Not thread-safe.
class ComputeBench {
 public:
  // Makes the backend of `config` with the initial parameters of a run and a batch of random
  // images, of mean 0 and variance 1. `config` and `clock` must outlive it. Errors: those of
  // CreateComputeBackend and UseBuffers; RESOURCE_EXHAUSTED for memory; INVALID_ARGUMENT for the
  // backend EMULATED, which computes nothing.
  static absl::StatusOr<std::unique_ptr<ComputeBench>> Create(const Config& config,
                                                              const Clock* clock);

  // What a backend that computes gradients does: where all scores are 0, the loss is that of
  // guessing, ln(classes); equal passes give equal gradients but for rounding; a small step against
  // the gradient lowers the loss. Returns what there was before the step. Errors: INTERNAL with
  // what was found instead; those of passes.
  absl::StatusOr<InitialPass> Verify();

  // Computes for `iterations`, at least 1, and returns the images per second. REQUIRES: Verify went
  // well.
  absl::StatusOr<double> ImagesPerSecond(int iterations);

 private:
  ComputeBench(const Config& config, const Clock* clock) : config_(config), clock_(clock) {}

  Batch batch() const;
  // A pass with the parameters as they are now, all of them new to the backend.
  absl::StatusOr<BatchResult> PassWithNewParameters();

  const Config& config_;
  const Clock* const clock_;
  FloatBuffer parameters_, gradients_, images_;
  std::vector<int32_t> labels_;
  std::unique_ptr<ComputeBackend> backend_;  // may hold on to the buffers
};

}  // namespace ps

#endif  // PS_BENCH_COMPUTE_BENCH_H_
