#ifndef EVENSHARD_WORKER_TRAINING_EVALUATION_H_
#define EVENSHARD_WORKER_TRAINING_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/data/batch_loader.h"
#include "worker/data/formats/dataset.h"

namespace evenshard {

// Evaluates parameters on a test set. Any worker may have to, but few do, so the memory for its
// batches is allocated when it is needed. Not thread-safe.
class Evaluation {
 public:
  // Both must outlive the evaluation.
  Evaluation(const PlannedConfig& config, const Dataset* dataset)
      : config_(config), dataset_(dataset) {}

  bool is_open() const { return loader_ != nullptr; }
  // Allocates the memory. Must be called once before Run. Errors: RESOURCE_EXHAUSTED.
  absl::Status Open();
  // Returns the memory of all batches, none before Open.
  std::vector<absl::Span<float>> buffers();

  // Logs and returns the share of the test images that are classified rightly by the parameters
  // after `iteration` iterations. Before each batch it calls `check`. Errors: those of `check`, of
  // reading images and of the backend.
  absl::StatusOr<double> Run(ComputeBackend& backend, absl::Span<const float> parameters,
                             int64_t iteration, const std::function<absl::Status()>& check);

 private:
  const PlannedConfig& config_;
  const Dataset* const dataset_;
  std::unique_ptr<BatchLoader> loader_;  // null until Open
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_EVALUATION_H_
