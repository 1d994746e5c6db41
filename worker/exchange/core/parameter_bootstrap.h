#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_PARAMETER_BOOTSTRAP_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_PARAMETER_BOOTSTRAP_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/placement/planned_config.h"
#include "worker/exchange/core/chunk_states.h"
#include "worker/exchange/core/exchange_core.h"
#include "worker/exchange/core/exchange_kind.h"

namespace evenshard {

// How a worker gets the parameters from which it continues, once every slot has accepted it, and
// each time that the run has gone on without it:
//
//   it joins a run under way             it takes part in the iteration before its first one, and
//                                        the answers are the parameters; it pulls them if every
//                                        worker that could complete that iteration has finished
//                                        (ExchangeCore::CatchUp)
//   it is behind, under QUORUM           it does the same, again until no other has gone on
//                                        (ExchangeRound::is_behind)
//   a run with model.from_workers        worker 0 pushes its own in iteration 0, in which the
//   begins                               others take part without contributing
//   otherwise                            it pulls them
//
// With model.from_workers it then pulls again until worker 0 has given every chunk: under ASYNC a
// worker may be answered before that. Next decides what comes next, and the caller does it. Not
// thread-safe.
class ParameterBootstrap {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the bootstrap, like all pointers here
    const Clock* clock = nullptr;
    ExchangeCore* core = nullptr;
    int rank = 0;
    bool brings_parameters =
        false;  // at the start of the run, if rank 0 has to (Exchange::Initialize)
  };

  struct Step {
    enum class Kind : uint8_t {
      kExchange,  // go through `iteration` to its end (ExchangeRound)
      kPull,      // pull every slot's chunks, not before `not_before` (SlotPull)
      kDone,
    };
    Kind kind = Kind::kDone;
    uint64_t iteration = 0;
    ExchangeKind exchange = {};  // with Begin: it assigns the initial parameters, or skips
    Contribution contribution = Contribution::kZeros;  // with Push, for every tensor
    absl::Time not_before = absl::InfinitePast();
  };

  explicit ParameterBootstrap(const Options& options) : options_(options) {}

  // Returns what to do next. REQUIRES: the core is ready, and the step before is done. Errors: the
  // core's failure; DEADLINE_EXCEEDED if worker 0 has not given its parameters within
  // limits.exchange_seconds.
  absl::StatusOr<Step> Next();

 private:
  Step CatchUp() const;  // see ExchangeRound::is_behind
  Step Pull(absl::Time not_before = absl::InfinitePast());
  void LogRepeat() const;

  const Options options_;
  bool has_begun_ = false;                        // a step was returned
  bool has_pulled_ = false;                       // the last step was a pull
  absl::Time deadline_ = absl::InfiniteFuture();  // for worker 0's parameters
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_PARAMETER_BOOTSTRAP_H_
