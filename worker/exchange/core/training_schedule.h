#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_TRAINING_SCHEDULE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_TRAINING_SCHEDULE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "worker/compute/layer_hooks.h"

namespace evenshard {

// What a worker does with the gradient of each batch, and when it exchanges: after every batch
// (ExchangeSchedule), or after a round of them in which it trains by itself (LocalRounds). The
// backend calls its hooks in every pass.
//
// Not thread-safe; used by the one thread that trains.
class TrainingSchedule : public LayerHooks {
 public:
  // `clock` must outlive the schedule.
  explicit TrainingSchedule(const Clock* clock) : clock_(*clock) {}

  // The memory in which the backend computes.
  virtual absl::Span<float> parameters() = 0;
  virtual absl::Span<float> gradients() = 0;

  // Must be called before the backend computes on the batch of an iteration.
  virtual void Start(int64_t iteration) = 0;
  // Must be called after the backend has computed. If `contributes` is false, the gradient is left
  // out. REQUIRES then: it has not been pushed early. If `everything` is true, all that was pushed
  // has been answered when it returns. Errors: those of TrainingExchange.
  virtual absl::Status Finish(bool contributes, bool everything) = 0;
  // The iteration to go on with after Finish.
  virtual int64_t next() const = 0;
  // The run has gone on without what this worker has pushed, and all parameters have been received
  // anew (TrainingExchange::is_behind).
  virtual void CaughtUp() = 0;
  // Returns the time spent waiting for shards since Start.
  absl::Duration waited() const { return waited_; }

  // Has parameters() be those of the shards, as they were received last, and calling it again has
  // them be what they were. REQUIRES: everything that was pushed has been answered.
  virtual void SwapReceived() = 0;

 protected:
  void ForgetWaits() { waited_ = absl::ZeroDuration(); }
  // Runs `wait` and adds the time it takes to waited().
  template <typename Wait>
  absl::Status Timed(Wait wait) {
    const absl::Time start = clock_.Now();
    absl::Status status = wait();
    waited_ += clock_.Now() - start;
    return status;
  }

 private:
  const Clock& clock_;
  absl::Duration waited_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_TRAINING_SCHEDULE_H_
