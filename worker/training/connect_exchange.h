#ifndef EVENSHARD_WORKER_TRAINING_CONNECT_EXCHANGE_H_
#define EVENSHARD_WORKER_TRAINING_CONNECT_EXCHANGE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/exchange/core/program_exchange.h"
#include "worker/exchange/core/training_exchange.h"
#include "worker/exchange/grpc/exchange.h"

namespace evenshard {

// Connects to what the config's topology has: to the shards (Exchange), or to the neighbours in the
// ring of workers (RingExchange; with `recovery` RecoveringRing). Errors: those of the three;
// INVALID_ARGUMENT for a ring with `recovery` if the options have no view link.
absl::StatusOr<std::unique_ptr<TrainingExchange>> ConnectExchange(const Exchange::Options& options);

// The same for a program that brings the model, whose ring has no recovery.
absl::StatusOr<std::unique_ptr<ProgramExchange>> ConnectProgram(const Exchange::Options& options);

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_CONNECT_EXCHANGE_H_
