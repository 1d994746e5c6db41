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
#include "common/base/doubling_notice.h"
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

// The figures of one worker's finished run.
struct TrainingSummary {
  int64_t iterations = 0;          // the number that this process has trained
  int64_t skipped_iterations = 0;  // the number whose gradient was not finite and was left out
  double median_iteration_seconds = 0;
  std::vector<double> iteration_seconds;
  double seconds = 0;  // the time of all iterations, without evaluation
  double images_per_second = 0;
  double compute_seconds = 0;  // the backend's time, without its waits for parameters
  double exchange_wait_seconds = 0;
  double final_loss = 0;                 // the loss of the last batch
  std::optional<double> final_accuracy;  // of the last evaluation; absent if there was none
  Exchange::Traffic traffic;

  // Returns the summary as one line of JSON. A loss that is not finite is null.
  std::string ToJson() const;
};

// Runs one worker: joins the shards, pulls the parameters, trains, evaluates and leaves. Meanwhile
// a UsageReporter reports what the worker uses. ExchangeSchedule says which parts of an iteration
// are exchanged while the backend computes.
class Trainer {
 public:
  struct Options {
    const Config* config = nullptr;  // must outlive the trainer
    int rank = 0;
    const Clock* clock = nullptr;             // must outlive the trainer
    std::vector<std::string> addresses = {};  // see Exchange::Options
    ProgressReporter::Options progress = {};  // the trainer sets the iteration counts
    Trace* trace = nullptr;                   // must outlive the trainer; null for no trace
    // Creates the backend. Tests set it to create one that the config does not name.
    std::function<absl::StatusOr<std::unique_ptr<ComputeBackend>>(const Config& config,
                                                                  const BackendOptions& options)>
        create_backend = CreateComputeBackend;
  };

  // Opens the data and creates the backend. Errors: those of OpenDatasets and CreateComputeBackend;
  // OUT_OF_RANGE if the config has no such rank; RESOURCE_EXHAUSTED if memory does not suffice.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const Options& options);

  // Trains to the end. May be called only once. Errors: those of Exchange and of reading data;
  // FAILED_PRECONDITION if the accuracy is below training.required_accuracy, or if more than half
  // of the gradients were left out; the reason given to Stop. Reports any error to the shards
  // before it returns it.
  absl::StatusOr<TrainingSummary> Run();

  // Makes Run end soon, with `reason` as its error. May be called from any thread.
  void Stop(const absl::Status& reason);
  // Sends the shards the reason given to Stop, if Run has not ended in time and the process must
  // end now. May be called from any thread.
  void Abandon(absl::Duration timeout);

 private:
  explicit Trainer(const Options& options) : options_(options), config_(*options.config) {}

  // Creates the loaders of data_ and computes the number of iterations.
  absl::Status MakeLoaders();
  // Joins, trains and leaves.
  absl::Status JoinAndTrain();
  absl::Status Train(Exchange& exchange);
  absl::Status StopReason();
  void SetExchange(Exchange* exchange);
  void SetProgress(ProgressReporter* progress);
  TrainingTotals Totals();             // called from the usage reporter's thread
  void ShowStall(const Stall& stall);  // called from a thread of the exchange
  // If `settles` is true, all parameters have been received when it returns.
  absl::Status Iterate(ExchangeSchedule& schedule, int64_t iteration, bool settles,
                       ProgressReporter& progress);
  // Runs the forward and backward pass, and traces it if there is a trace.
  absl::StatusOr<BatchResult> Compute(LayerHooks& hooks, const Batch& batch, int64_t iteration);
  // Loads the batch of an iteration. It is empty if the backend needs no data.
  absl::StatusOr<Batch> LoadBatch(int64_t iteration);
  // Loads the batch of an iteration early, while a device computes. LoadBatch then returns it.
  void PrefetchBatch(int64_t iteration);
  // Clips the gradient if the config asks for it. Returns whether to push it: false if it is not
  // finite and the config says SKIP.
  bool PrepareGradient();
  // Counts an iteration whose loss is not finite, or whose gradient is left out, and warns of the
  // first one and whenever their number has doubled.
  void NoteDivergence(int64_t iteration, double loss, bool contributes, ProgressReporter& progress);
  // Returns an error if more than half of the gradients were left out.
  absl::Status CheckSkipped() const;
  absl::Status Evaluate(Exchange& exchange, int64_t iteration);

  const Options options_;
  const Config& config_;
  int64_t iterations_per_epoch_ = 1;
  int64_t total_iterations_ = 0;
  Datasets data_;
  std::unique_ptr<BatchLoader> loader_;       // null if the backend needs no data
  std::unique_ptr<BatchLoader> test_loader_;  // null if this worker does not evaluate
  int64_t next_iteration_ = -1;  // the iteration of next_batch_, or -1 if there is none
  absl::StatusOr<Batch> next_batch_ = absl::CancelledError();
  Exchange::Buffers buffers_;
  std::unique_ptr<ComputeBackend> backend_;  // destroyed before buffers_, which it may use

  TrainingSummary summary_;
  int64_t non_finite_losses_ = 0;
  DoublingNotice<int64_t> loss_notice_{1};  // of non_finite_losses_
  DoublingNotice<int64_t> skip_notice_{1};  // of summary_.skipped_iterations

  std::stop_source stop_;
  absl::Mutex mutex_;
  absl::Status stop_reason_ ABSL_GUARDED_BY(mutex_);
  Exchange* exchange_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null before and after the exchange
  ProgressReporter* progress_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null before and after training
  TrainingTotals totals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ps

#endif  // PS_WORKER_TRAINER_H_
