#ifndef EVENSHARD_WORKER_REPORTING_USAGE_REPORTER_H_
#define EVENSHARD_WORKER_REPORTING_USAGE_REPORTER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "proto/worker_usage.pb.h"
#include "worker/compute/backend.h"
#include "worker/reporting/nvml.h"

namespace evenshard {

// How much a worker has trained so far.
struct TrainingTotals {
  int64_t images = 0;
  double seconds = 0;                // total of the iterations that have ended
  double exchange_wait_seconds = 0;  // the part of `seconds` spent waiting with nothing to compute
};

// Reports what this worker uses of its machine, at once and then once a period, on a thread of its
// own. A report that fails has no consequences; the first failure is logged.
class UsageReporter {
 public:
  struct Options {
    const ComputeBackend* backend = nullptr;      // must outlive the reporter
    const Clock* clock = nullptr;                 // must outlive the reporter
    std::function<TrainingTotals()> totals = {};  // thread-safe
    // Sends a report. Must be thread-safe and return soon after a stop is requested.
    std::function<absl::Status(const WorkerUsage&, const std::stop_token&)> send = {};
    absl::Duration period = absl::Seconds(2);
    std::string nvml_library = "libnvidia-ml.so.1";
  };

  explicit UsageReporter(const Options& options);
  // Stops a report in progress and joins the thread.
  ~UsageReporter() = default;

  UsageReporter(const UsageReporter&) = delete;
  UsageReporter& operator=(const UsageReporter&) = delete;

 private:
  void Run(const std::stop_token& stop);
  WorkerUsage Usage();
  void AddDevice(WorkerUsage* usage);
  void AddTraining(WorkerUsage* usage);

  const Options options_;

  // Used by the thread only.
  std::optional<Nvml> nvml_;  // absent until the backend has a device
  TrainingTotals before_;     // totals when the rates were last computed
  std::optional<double> images_per_second_;
  std::optional<double> exchange_wait_fraction_;

  std::jthread thread_;  // last, because it uses the other members
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_REPORTING_USAGE_REPORTER_H_
