#ifndef EVENSHARD_WORKER_TRAINING_TRAINER_H_
#define EVENSHARD_WORKER_TRAINING_TRAINER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/data/formats/dataset.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/exchange/core/training_schedule.h"
#include "worker/exchange/grpc/exchange.h"
#include "worker/reporting/progress.h"
#include "worker/reporting/training_summary.h"
#include "worker/reporting/usage_reporter.h"
#include "worker/trace/trace.h"
#include "worker/training/connect_exchange.h"
#include "worker/training/create_backend.h"
#include "worker/training/evaluation.h"
#include "worker/training/gradient_check.h"
#include "worker/training/local_model.h"
#include "worker/training/training_batches.h"

namespace evenshard {

// Runs one worker: joins the shards, pulls the parameters, trains, evaluates and leaves. Meanwhile
// a UsageReporter reports what the worker uses. A TrainingSchedule says what becomes of a batch's
// gradient, and what is exchanged while the backend computes. An iteration here is a batch; an
// exchange is one too, unless the config has local steps, a round of which is one exchange. When
// the worker set of the run changes, TrainingBatches deals the images anew; when the run goes back
// to a checkpoint, the worker pulls again and goes on from there.
class Trainer {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the trainer
    int rank = 0;
    const Clock* clock = nullptr;             // must outlive the trainer
    std::vector<std::string> addresses = {};  // see Exchange::Options
    ProgressReporter::Options progress = {};  // the trainer sets the iteration counts
    Trace* trace = nullptr;                   // must outlive the trainer; null for no trace
    // Creates the backend. Tests set it to create one that the config does not name.
    std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(const PlannedConfig& config,
                                                                  const BackendOptions& options)>
        create_backend = CreateComputeBackend;
    // Joins the shards, or the ring. Tests set it to play them.
    std::function<absl::StatusOr<std::unique_ptr<TrainingExchange>>(
        const Exchange::Options& options)>
        connect = ConnectExchange;
  };

  // Opens the data and creates the backend. Errors: those of OpenDatasets and CreateComputeBackend;
  // OUT_OF_RANGE if the config has no such rank; RESOURCE_EXHAUSTED if memory does not suffice.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const Options& options);

  // Trains to the end. May be called only once. Errors: those of Exchange and of reading data;
  // FAILED_PRECONDITION if the accuracy is below training.required_accuracy, or if more than half
  // of the gradients were left out; the reason given to Stop. Reports any error to the shards
  // before it returns it.
  absl::StatusOr<TrainingSummary> Run();

  // The parameters as they were received last, in the layout of Model. To be called after Run.
  absl::Span<const float> parameters() const { return buffers_.parameters.span(); }

  // Whether this worker was the one with the lowest rank of those that count, in the worker set
  // that it knew last. To be called after Run.
  bool is_first() const { return is_first_; }

  // Makes Run end soon, with `reason` as its error. May be called from any thread.
  void Stop(const absl::Status& reason);
  // Sends the shards the reason given to Stop, if Run has not ended in time and the process must
  // end now. May be called from any thread.
  void Abandon(absl::Duration timeout);

 private:
  // What has become of an iteration that was begun.
  enum class Outcome {
    kTrained,
    kDealtAnew,  // its images were not the right ones any more; nothing was pushed
  };

  explicit Trainer(const Options& options)
      : options_(options), config_(*options.config), gradient_check_(config_) {}

  // Announces the memory of everything to the backend.
  absl::Status UseBuffers();
  // Joins, trains and leaves.
  absl::Status JoinAndTrain();
  // Makes everything ready to train again and returns the exchange to go on with.
  absl::StatusOr<int64_t> GoBack(TrainingExchange& exchange);
  // Reports and trains from exchange `start` to the end.
  absl::Status ReportAndTrain(TrainingExchange& exchange, int64_t start);
  absl::Status Train(TrainingExchange& exchange, int64_t start);
  std::unique_ptr<TrainingSchedule> MakeSchedule(TrainingExchange& exchange, int64_t start);
  // Deals by the worker sets of the view that the exchange follows.
  absl::Status FollowWorkerSets(TrainingExchange& exchange, ProgressReporter& progress);
  absl::Status StopReason();
  void SetExchange(TrainingExchange* exchange);
  void SetProgress(ProgressReporter* progress);
  TrainingTotals Totals();             // called from the usage reporter's thread
  void ShowStall(const Stall& stall);  // called from a thread of the exchange
  // Called while the exchange waits: offers the local optimizer's state to workers that join.
  void GiveState();
  // Whether something is to be done when all iterations before `iteration` are done: the training
  // has ended, or a worker evaluates. With local steps, not within a round.
  bool PausesAt(int64_t iteration) const;
  // Runs one iteration.
  absl::StatusOr<Outcome> Iterate(TrainingExchange& exchange, TrainingSchedule& schedule,
                                  int64_t iteration, ProgressReporter& progress);
  // Runs the forward and backward pass, and traces it if there is a trace.
  absl::StatusOr<BatchResult> Compute(TrainingSchedule& schedule, LayerHooks& hooks,
                                      const Batch& batch, int64_t iteration);
  // Counts an iteration in the summary and the progress.
  void Count(const IterationProgress& iteration, absl::Duration lasted, ProgressReporter& progress);
  // Evaluates the shards' parameters after `iteration` iterations and returns the accuracy.
  absl::StatusOr<double> Evaluate(TrainingExchange& exchange, TrainingSchedule& schedule,
                                  int64_t iteration);
  // Does what is left to do after the last iteration.
  absl::Status Conclude(TrainingExchange& exchange, TrainingSchedule& schedule, int64_t iteration);

  const Options options_;
  const PlannedConfig& config_;
  int last_layer_ = -1;  // the last layer with tensors
  Datasets data_;
  std::unique_ptr<TrainingBatches> batches_;
  std::unique_ptr<Evaluation> evaluation_;  // null if there is no test set
  std::optional<uint64_t> view_;            // the number of the view whose worker sets batches_ has
  Exchange::Buffers buffers_;
  int64_t steps_ = 1;                        // the iterations of an exchange
  std::unique_ptr<LocalModel> local_;        // null without local steps
  std::unique_ptr<ComputeBackend> backend_;  // destroyed before the memory that it may use

  bool is_first_ = false;

  TrainingSummary summary_;
  GradientCheck gradient_check_;

  std::stop_source stop_;
  absl::Mutex mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mutex_);
  TrainingExchange* exchange_ ABSL_GUARDED_BY(mutex_) =
      nullptr;  // null before and after the exchange
  ProgressReporter* progress_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null before and after training
  TrainingTotals totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_TRAINER_H_
