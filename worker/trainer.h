#ifndef PS_WORKER_TRAINER_H_
#define PS_WORKER_TRAINER_H_

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
#include "common/base/clock.h"
#include "common/config/config.h"
#include "worker/compute/backend.h"
#include "worker/compute/create_backend.h"
#include "worker/data/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/exchange/exchange.h"
#include "worker/exchange/exchange_schedule.h"
#include "worker/progress.h"
#include "worker/trace/trace.h"
#include "worker/usage_reporter.h"

namespace ps {

// What a finished run was like, for one worker.
struct TrainingSummary {
  int64_t iterations = 0;          // trained by this process
  int64_t skipped_iterations = 0;  // whose gradient was not finite and was left out
  double median_iteration_seconds = 0;
  std::vector<double> iteration_seconds;
  double seconds = 0;  // of all iterations, evaluation not included
  double images_per_second = 0;
  double compute_seconds = 0;  // the backend's, without its waits for parameters
  double exchange_wait_seconds = 0;
  double final_loss = 0;                 // of the last batch
  std::optional<double> final_accuracy;  // rank 0 with test data: of the last evaluation
  Exchange::Traffic traffic;

  std::string ToJson() const;
};

// A worker's run: joins, pulls, trains, pushes and pulls, evaluates, leaves; beside that it reports
// what it uses (UsageReporter). What of an iteration is exchanged while the backend computes: see
// ExchangeSchedule.
class Trainer {
 public:
  struct Options {
    const Config* config = nullptr;  // must outlive the trainer
    int rank = 0;
    const Clock* clock = nullptr;             // must outlive the trainer
    std::vector<std::string> addresses = {};  // see Exchange::Options
    ProgressReporter::Options progress = {};  // its iteration counts are filled in here
    Trace* trace = nullptr;                   // null: none is kept; must outlive the trainer
    // Tests make others than the config's.
    std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(const Config& config,
                                                                  const BackendOptions& options)>
        create_backend = CreateComputeBackend;
  };

  // Opens the data and makes the backend. Errors: those of OpenDatasets and
  // CreateComputeBackend; OUT_OF_RANGE for the rank; RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const Options& options);

  // Runs to the end. Once only. Errors: those of Exchange; of reading data; FAILED_PRECONDITION
  // where the accuracy stays below training.required_accuracy, or where more than half of the
  // gradients were left out; what was given to Stop. The shards are told of any error before it is
  // returned.
  absl::StatusOr<TrainingSummary> Run();

  // Makes Run end soon, with `reason` as its error. From any thread.
  void Stop(const absl::Status& reason);
  // After Stop, where Run has not ended in time: tells the shards the reason, for a process
  // that ends now. From any thread.
  void Abandon(absl::Duration timeout);

 private:
  explicit Trainer(const Options& options) : options_(options), config_(*options.config) {}

  // Fills in what reads data_, and how many iterations that makes.
  absl::Status MakeLoaders();
  // Joins, trains and leaves.
  absl::Status JoinAndTrain();
  absl::Status Train(Exchange& exchange);
  absl::Status StopReason();
  void SetExchange(Exchange* exchange);
  void SetProgress(ProgressReporter* progress);
  TrainingTotals Totals();             // from any thread
  void ShowStall(const Stall& stall);  // from a thread of the exchange
  // `settles`: all parameters are back afterwards.
  absl::Status Iterate(ExchangeSchedule& schedule, int64_t iteration, bool settles,
                       ProgressReporter& progress);
  // The forward and backward pass, traced where there is a trace.
  absl::StatusOr<BatchResult> Compute(LayerHooks& hooks, const Batch& batch, int64_t iteration);
  // Loads the batch of an iteration; an empty one where the backend needs no data.
  absl::StatusOr<Batch> LoadBatch(int64_t iteration);
  // The same ahead, for a device that computes meanwhile; LoadBatch then has it.
  void PrefetchBatch(int64_t iteration);
  // Whether the gradient may be pushed: clips it, and says no to one that is not
  // finite where the config says SKIP.
  bool PrepareGradient();
  // Counts an iteration whose loss is not finite, or whose gradient is left out, and warns of the
  // first one and whenever their number has doubled.
  void NoteDivergence(int64_t iteration, double loss, bool contributes, ProgressReporter& progress);
  // The error of a run that left out more than half of its gradients.
  absl::Status CheckSkipped() const;
  absl::Status Evaluate(Exchange& exchange, int64_t iteration);

  const Options options_;
  const Config& config_;
  int64_t iterations_per_epoch_ = 1;
  int64_t total_iterations_ = 0;
  Datasets data_;
  std::unique_ptr<BatchLoader> loader_;       // null where the backend needs no data
  std::unique_ptr<BatchLoader> test_loader_;  // null where this worker does not evaluate
  int64_t next_iteration_ = -1;               // of next_batch_; -1: there is none
  absl::StatusOr<Batch> next_batch_ = absl::CancelledError();
  Exchange::Buffers buffers_;
  std::unique_ptr<ComputeBackend> backend_;  // may hold on to the memory before it

  TrainingSummary summary_;
  int64_t non_finite_losses_ = 0;

  std::stop_source stop_;
  absl::Mutex mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mutex_);
  Exchange* exchange_ ABSL_GUARDED_BY(mutex_) = nullptr;          // while there is one
  ProgressReporter* progress_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while there is one
  TrainingTotals totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ps

#endif  // PS_WORKER_TRAINER_H_
