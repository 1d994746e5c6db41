#ifndef EVENSHARD_WORKER_RING_CORE_RING_AGREEMENT_H_
#define EVENSHARD_WORKER_RING_CORE_RING_AGREEMENT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/wire/chunk_codec.h"
#include "common/wire/hyperparameters.h"
#include "worker/exchange/core/exchange_kind.h"

namespace evenshard {

// In a ring each worker applies its own numbers to its own part of the model. So every sum says
// what the workers in it do in the iteration, and who receives it compares.

// What all workers have to do alike in an iteration, as a number: 0 for gradients at the config's
// rates.
uint64_t AgreementOn(const ExchangeKind& kind);

// What one worker does, for the segment of a sum.
struct RingActions {
  uint64_t agreement = 0;
  bool assigns = false;
  Hyperparameters hyperparameters = {};  // of the segment's first tensor
};

// Errors, which end the run (RUN_FAILED): INVALID_ARGUMENT, "iteration 3: worker 0 (...) gives
// fc.weight the learning rate 0.5, and worker 1 the learning rate 0.1; allowed: ..." if the sender
// of a sum does something else than this worker. `tensor` is the segment's first.
absl::Status CheckAgreement(const GradientHeader& received, absl::string_view sender,
                            const RingActions& own, int rank, absl::string_view tensor,
                            uint64_t iteration);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_RING_CORE_RING_AGREEMENT_H_
