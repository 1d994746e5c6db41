#ifndef EVENSHARD_WORKER_TRAINING_TRAINING_BATCHES_H_
#define EVENSHARD_WORKER_TRAINING_TRAINING_BATCHES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/placement/planned_config.h"
#include "proto/view.pb.h"
#include "worker/compute/backend.h"
#include "worker/data/batch_loader.h"
#include "worker/data/formats/dataset.h"
#include "worker/data/order/dealing.h"
#include "worker/reporting/progress.h"

namespace evenshard {

// The batches that one worker trains on, and how long the training is. Both follow from the worker
// sets of the run, which may change meanwhile. If the backend needs no data, batches are empty, and
// all iterations count as one epoch.
//
// A batch is loaded by the worker sets that are known then. Under the schedule FULL they may be
// replaced while the forward pass of that batch runs; IsDealtAnew then says that the pass was in
// vain.
//
// Not thread-safe.
class TrainingBatches {
 public:
  // Begins with a worker set of all ranks. `config`, `dataset` and `backend` must outlive this
  // object; `dataset` is null if the backend needs no data. Errors: those of BatchLoader::Create
  // and Dealing::Create.
  static absl::StatusOr<std::unique_ptr<TrainingBatches>> Create(const PlannedConfig& config,
                                                                 int rank, const Dataset* dataset);

  // Deals by these worker sets from now on. Batches that were loaded early are dropped if others
  // take their place. Errors: those of Dealing::Create, and INVALID_ARGUMENT for a rank that the
  // config does not have.
  absl::Status SetWorkerSets(const std::vector<WorkerSet>& worker_sets);

  // The number of iterations and the epochs that they are in, by the worker sets known so far.
  const TrainingLength& length() const { return length_; }
  // Whether the worker evaluates when all iterations before `iteration` are done: the one with the
  // lowest rank of the worker set that goes on.
  bool Evaluates(int64_t iteration) const;

  // Returns the batch of an iteration, which stays valid until the next Load or Prefetch. Errors:
  // those of reading it; FAILED_PRECONDITION if the iteration's worker set does not have this
  // worker.
  absl::StatusOr<Batch> Load(int64_t iteration, ComputeBackend& backend);
  // Loads the batch of an iteration early, and lets the backend fetch it. Load then returns it.
  void Prefetch(int64_t iteration, ComputeBackend& backend);
  // Forgets what was loaded early, before iterations are repeated.
  void DropPrefetched();
  // Whether the batch that Load returned last is not the one of its iteration any more.
  bool IsDealtAnew() const;

  // Returns the memory of all batches.
  std::vector<absl::Span<float>> buffers();

 private:
  TrainingBatches(const PlannedConfig& config, int rank, const Dataset* dataset)
      : config_(config), rank_(rank), dataset_(dataset) {}

  absl::StatusOr<Dealing> Deal(const std::vector<WorkerSet>& worker_sets) const;
  // `from` is an iteration before which the dealing is the same as the present one.
  void SetDealing(const Dealing& dealing, int64_t from);

  const PlannedConfig& config_;
  const int rank_;
  const Dataset* const dataset_;
  std::optional<Dealing> dealing_;       // absent if there is no data
  std::unique_ptr<BatchLoader> loader_;  // null if there is no data
  TrainingLength length_;

  // What Load returned last.
  int64_t iteration_ = 0;
  std::optional<Dealing::Share> share_;

  int64_t next_iteration_ = -1;  // the iteration of next_batch_, or -1 if there is none
  absl::StatusOr<Batch> next_batch_ = absl::CancelledError();
  bool backend_holds_dropped_ = false;  // the backend was given a batch early that was dropped
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_TRAINING_BATCHES_H_
