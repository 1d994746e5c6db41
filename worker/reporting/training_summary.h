#ifndef EVENSHARD_WORKER_REPORTING_TRAINING_SUMMARY_H_
#define EVENSHARD_WORKER_REPORTING_TRAINING_SUMMARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "worker/exchange/core/training_exchange.h"

namespace evenshard {

// The figures of one worker's finished run. They are of the work of this process: an iteration that
// it has repeated after the run went back to a checkpoint counts each time. A forward pass that was
// abandoned (TrainingBatches) is in none of them.
struct TrainingSummary {
  int64_t iterations = 0;          // the number that this process has trained
  int64_t skipped_iterations = 0;  // the number whose gradient was not finite and was left out
  double median_iteration_seconds = 0;
  std::vector<double> iteration_seconds;
  absl::Time began;    // of its first iteration, by the clock of the trainer
  double seconds = 0;  // the time of all iterations, without evaluation
  double images_per_second = 0;
  double compute_seconds = 0;  // the backend's time, without its waits for parameters
  double exchange_wait_seconds = 0;
  double final_loss = 0;  // the loss of the last batch
  struct Evaluation {
    int64_t iterations = 0;  // of the run, before it
    double seconds = 0;      // the time of this worker's iterations before it, without evaluation
    double accuracy = 0;     // the share of the test images that were classified rightly
  };
  std::vector<Evaluation> evaluations;  // made by this worker
  // Of the evaluation at the end; absent if another worker has made it.
  std::optional<double> final_accuracy;
  TrainingExchange::Traffic traffic;

  // Computes the median and the rate. `batch_size` is that of this worker.
  void Complete(int64_t batch_size);

  // Returns the summary as one line of JSON. A loss that is not finite is null. `began` is in
  // seconds since 1970.
  std::string ToJson() const;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_REPORTING_TRAINING_SUMMARY_H_
