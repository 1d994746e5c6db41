#ifndef PS_WORKER_EXCHANGE_EXCHANGE_SCHEDULE_H_
#define PS_WORKER_EXCHANGE_EXCHANGE_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/config/config.h"
#include "worker/compute/layer_hooks.h"
#include "worker/exchange/exchange.h"

namespace ps {

// When a worker's gradients leave and when it waits for parameters: the config's
// exchange.schedule. To be given to the backend as hooks in every iteration:
//
//   SEQUENTIAL  nothing while the backend computes; Finish pushes all and waits for all.
//   BACKWARD    GradientReady pushes the layer; Finish waits for all.
//   FULL        GradientReady pushes the layer; Finish waits for nothing, and in the next
//               iteration AwaitParameters waits for its layer.
//
// Not thread-safe; used by the one thread that trains.
class ExchangeSchedule final : public LayerHooks {
 public:
  struct Options {
    const Config* config = nullptr;
    const Clock* clock = nullptr;
    Exchange* exchange = nullptr;
    absl::Span<const float> gradients = {};
    absl::Span<float> parameters = {};
  };

  // All that `options` point to must outlive the schedule.
  explicit ExchangeSchedule(const Options& options);

  // Before the backend computes.
  void Start(int64_t iteration);
  // After it. `contributes`: false leaves the gradient out (SEQUENTIAL only). `everything`: all
  // parameters are back afterwards, under FULL too. Errors: those of Exchange.
  absl::Status Finish(bool contributes, bool everything);

  absl::Status AwaitParameters(int layer) override;
  absl::Status GradientReady(int layer) override;

  // Waiting for shards since Start.
  absl::Duration waited() const { return waited_; }

 private:
  // Adds the time that `wait` takes.
  template <typename Wait>
  absl::Status Timed(Wait wait);

  const Options options_;
  const ExchangeConfig::Schedule schedule_;
  int64_t iteration_ = 0;
  bool has_begun_ = false;  // this iteration's exchange
  absl::Duration waited_;
};

}  // namespace ps

#endif  // PS_WORKER_EXCHANGE_EXCHANGE_SCHEDULE_H_
