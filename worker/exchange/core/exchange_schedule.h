#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_SCHEDULE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "worker/compute/layer_hooks.h"
#include "worker/exchange/core/schedule_policy.h"
#include "worker/exchange/core/training_exchange.h"

namespace evenshard {

// Pushes a worker's gradients and waits for its parameters when the SchedulePolicy says: layer by
// layer, as the hooks that the backend gets in every iteration, and all that is left in Finish.
//
// Not thread-safe; used by the one thread that trains.
class ExchangeSchedule final : public LayerHooks {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;
    const Clock* clock = nullptr;
    TrainingExchange* exchange = nullptr;
    absl::Span<const float> gradients = {};
    absl::Span<float> parameters = {};
  };

  // Everything that `options` refers to must outlive the schedule.
  explicit ExchangeSchedule(const Options& options);

  // Must be called before the backend computes.
  void Start(int64_t iteration);
  // Must be called after the backend has computed. If `contributes` is false, the gradient is left
  // out. REQUIRES then: it has not been pushed early. If `everything` is true, all parameters have
  // been received when it returns, even under FULL. Errors: those of Exchange.
  absl::Status Finish(bool contributes, bool everything);

  absl::Status AwaitParameters(int layer) override;
  absl::Status GradientReady(int layer) override;

  // Returns the time spent waiting for shards since Start.
  absl::Duration waited() const { return waited_; }

 private:
  // Runs `wait` and adds the time it takes to waited_.
  template <typename Wait>
  absl::Status Timed(Wait wait);

  const Options options_;
  const SchedulePolicy schedule_;
  int64_t iteration_ = 0;
  absl::Duration waited_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_EXCHANGE_SCHEDULE_H_
