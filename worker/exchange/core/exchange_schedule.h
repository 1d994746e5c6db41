#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_SCHEDULE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "worker/exchange/core/schedule_policy.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/exchange/core/training_schedule.h"

namespace evenshard {

// An exchange after every batch. Pushes a worker's gradients and waits for its parameters when the
// SchedulePolicy says: layer by layer, in the hooks, and all that is left in Finish. Even under
// FULL all parameters have been received then if `everything` is true.
class ExchangeSchedule final : public TrainingSchedule {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;
    const Clock* clock = nullptr;
    TrainingExchange* exchange = nullptr;
    absl::Span<float> gradients = {};
    absl::Span<float> parameters = {};
  };

  // Everything that `options` refers to must outlive the schedule.
  explicit ExchangeSchedule(const Options& options);

  absl::Span<float> parameters() override { return options_.parameters; }
  absl::Span<float> gradients() override { return options_.gradients; }
  void Start(int64_t iteration) override;
  absl::Status Finish(bool contributes, bool everything) override;
  int64_t next() const override { return iteration_ + 1; }
  void CaughtUp() override {}
  void SwapReceived() override {}

  absl::Status AwaitParameters(int layer) override;
  absl::Status GradientReady(int layer) override;

 private:
  const Options options_;
  const SchedulePolicy schedule_;
  int64_t iteration_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_SCHEDULE_H_
