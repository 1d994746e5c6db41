#include "worker/training/training_batches.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/data/order/batch_order.h"
#include "worker/training/loader_threads.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<TrainingBatches>> TrainingBatches::Create(
    const PlannedConfig& config, int rank, const Dataset* dataset) {
  auto batches = absl::WrapUnique(new TrainingBatches(config, rank, dataset));
  if (dataset == nullptr) {
    batches->length_.iterations = config.proto().training().iterations();
    return batches;
  }
  WorkerSet all;
  for (int i = 0; i < config.workers(); ++i) all.add_rank(i);
  ASSIGN_OR_RETURN(const Dealing dealing, batches->Deal({all}));
  ASSIGN_OR_RETURN(batches->loader_,
                   BatchLoader::Create({.dataset = dataset,
                                        .order = {},  // set below
                                        .batch_size = config.proto().training().batch_size(),
                                        .threads = LoaderThreads(config)}));
  batches->SetDealing(dealing, /*from=*/0);
  return batches;
}

absl::StatusOr<Dealing> TrainingBatches::Deal(const std::vector<WorkerSet>& worker_sets) const {
  // A ring may go on from a checkpoint of more workers, which are in its earlier worker sets.
  const WorkerSet last = worker_sets.empty() ? WorkerSet() : worker_sets.back();
  for (const uint32_t rank : last.rank()) {
    if (rank < static_cast<uint32_t>(config_.workers())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the worker set from iteration ", last.from_iteration(), " on has rank ", rank,
                     ", the config has ", config_.workers(), " workers"));
  }
  return Dealing::Create({.images = dataset_->size(),
                          .batch_size = config_.proto().training().batch_size(),
                          .worker_sets = worker_sets});
}

absl::Status TrainingBatches::SetWorkerSets(const std::vector<WorkerSet>& worker_sets) {
  if (!dealing_.has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Dealing dealing, Deal(worker_sets));
  const int64_t from = dealing.FirstDifference(*dealing_);
  if (from <= next_iteration_) DropPrefetched();
  SetDealing(dealing, from);
  return absl::OkStatus();
}

void TrainingBatches::SetDealing(const Dealing& dealing, int64_t from) {
  const Training& training = config_.proto().training();
  dealing_ = dealing;
  const int64_t iterations =
      training.has_epochs() ? dealing.IterationsOf(training.epochs()) : training.iterations();
  length_ = {.iterations = iterations,
             .epoch = [dealing](int64_t iteration) { return dealing.EpochAt(iteration); }};
  loader_->Redeal(from,
                  ShuffledOrder({.dealing = dealing,
                                 .rank = rank_,
                                 .seed = training.seed(),
                                 .augment = config_.proto().data().has_augment()}),
                  iterations);
}

bool TrainingBatches::Evaluates(int64_t iteration) const {
  return dealing_.has_value() && dealing_->LowestRank(iteration) == rank_;
}

absl::StatusOr<Batch> TrainingBatches::Load(int64_t iteration, ComputeBackend& backend) {
  if (loader_ == nullptr) return Batch();
  iteration_ = iteration;
  share_ = dealing_->ShareOf(rank_, iteration);
  if (!share_.has_value()) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", rank_,
                                                      " does not count in iteration ", iteration,
                                                      ": the run goes on without it"));
  }
  if (next_iteration_ == iteration) {
    next_iteration_ = -1;
    return std::exchange(next_batch_, absl::CancelledError());
  }
  DropPrefetched();
  absl::StatusOr<Batch> batch = loader_->Load(iteration);
  // The backend would take the batch for the dropped one if it lies in the same memory.
  if (batch.ok() && std::exchange(backend_holds_dropped_, false)) backend.Prefetch(*batch);
  return batch;
}

void TrainingBatches::Prefetch(int64_t iteration, ComputeBackend& backend) {
  if (loader_ == nullptr || iteration >= length_.iterations) return;
  next_iteration_ = iteration;
  next_batch_ = loader_->Load(iteration);
  if (next_batch_.ok()) backend.Prefetch(*next_batch_);
}

void TrainingBatches::DropPrefetched() {
  if (next_iteration_ < 0) return;
  next_iteration_ = -1;
  if (std::exchange(next_batch_, absl::CancelledError()).ok()) backend_holds_dropped_ = true;
}

bool TrainingBatches::IsDealtAnew() const {
  return dealing_.has_value() && dealing_->ShareOf(rank_, iteration_) != share_;
}

std::vector<absl::Span<float>> TrainingBatches::buffers() {
  return loader_ == nullptr ? std::vector<absl::Span<float>>() : loader_->buffers();
}

}  // namespace evenshard
