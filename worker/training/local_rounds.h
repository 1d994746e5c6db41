#ifndef EVENSHARD_WORKER_TRAINING_LOCAL_ROUNDS_H_
#define EVENSHARD_WORKER_TRAINING_LOCAL_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "worker/compute/backend.h"
#include "worker/exchange/core/schedule_policy.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/exchange/core/training_schedule.h"
#include "worker/training/local_model.h"

namespace evenshard {

// Local steps (config.local): a worker takes steps with its own optimizer on its own model, and
// exchanges it from time to time.
//
//   received: the shards' parameters --Adopt--> local model --steps--> local model
//   received - local model --push--> the shards' mean of all workers, and their optimizer's step
//
// A round has local.steps iterations, so that iteration i is of round i / steps, and is one
// exchange. In it each fragment of the model is pushed once: the last one at the end of the round,
// the others at equal distances before; in the last round of the training all at the end. A
// fragment's answer is used local.overlap_steps iterations after its push, where the pass first
// needs its layers. What is pushed always counts from what was received last, also where
// local.mixing lets a part of the own parameters stay.
//
// A worker that joins a run under way contributes nothing to its first round. Under SYNC its
// optimizer then gets the state of another worker's, if one has any.
//
// With local.seconds a round ends early, and next() leaves out the rest of its iterations.
class LocalRounds final : public TrainingSchedule {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;
    const Clock* clock = nullptr;
    TrainingExchange* exchange = nullptr;
    ComputeBackend* backend = nullptr;  // told what is written of the local model
    LocalModel* model = nullptr;
    // The exchange's buffers.
    absl::Span<float> pushed = {};
    absl::Span<float> received = {};
    // Where the training goes on, with all parameters received. At the beginning of a round.
    int64_t start = 0;
    // Returns how many iterations the training has, as far as it is known.
    std::function<int64_t()> length;
  };

  // Everything that `options` refers to must outlive the schedule.
  explicit LocalRounds(const Options& options);

  absl::Span<float> parameters() override { return options_.model->parameters(); }
  absl::Span<float> gradients() override { return options_.model->gradients(); }
  void Start(int64_t iteration) override;
  absl::Status Finish(bool contributes, bool everything) override;
  int64_t next() const override { return next_; }
  void CaughtUp() override;
  void SwapReceived() override;

  absl::Status AwaitParameters(int layer) override;

 private:
  struct Fragment {
    std::vector<int> layers;
    int64_t due = 0;  // the iteration from which on what comes for it is taken over
  };

  // The floats of a layer in all buffers.
  template <typename Float>
  absl::Span<Float> Of(int layer, absl::Span<Float> buffer) const;
  // The iteration that ends the round of `iteration`, unless local.seconds does.
  int64_t EndOfRound(int64_t iteration) const;
  // The iteration after which a fragment is pushed in the present round.
  int64_t PushedAfter(size_t fragment, int64_t end) const;
  absl::Status PushFragment(Fragment& fragment, float weight);
  // Before the exchange of the first round after the worker has joined.
  absl::Status TakeState();
  // Has the local model go on with what was received of a layer.
  void Adopt(int layer);

  const Options options_;
  const PlannedConfig& config_;
  const LocalSteps& local_;
  const SchedulePolicy schedule_;
  const int64_t steps_;

  std::vector<Fragment> fragments_;
  std::vector<int> fragment_of_;  // by layer
  std::vector<bool> is_due_;      // by layer: what comes for it has not been taken over yet
  int64_t iteration_ = 0;
  int64_t next_ = 0;
  bool is_first_ = true;  // nothing has been pushed since the start
  int taken_ = 0;         // steps of the present round
  // As it was known at the beginning of the round. A change of the worker set may make the training
  // longer or shorter in the middle, when fragments may have been pushed already.
  bool is_last_round_ = false;
  absl::Time round_began_;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_LOCAL_ROUNDS_H_
