#ifndef EVENSHARD_WORKER_EXCHANGE_CORE_PROGRAM_EXCHANGE_H_
#define EVENSHARD_WORKER_EXCHANGE_CORE_PROGRAM_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/states_by_name.h"
#include "common/placement/plan/plan.h"
#include "common/wire/hyperparameters.h"
#include "proto/parameter_server.pb.h"
#include "worker/exchange/core/exchange_kind.h"
#include "worker/exchange/core/exchange_round.h"
#include "worker/exchange/core/training_exchange.h"

namespace evenshard {

// What a program that brings the model uses of an exchange (client/evenshard.h), beside what the
// training loop uses: single tensors, and what the workers have in common beside the parameters.
// Exchange does it with shards, and RingExchange in a ring; exchange.h says more about each method.
class ProgramExchange : public TrainingExchange {
 public:
  // Where the program is in the iteration, and what of it is pushed and received.
  virtual ExchangeRound::Phase phase() const = 0;
  virtual bool TensorPushed(int tensor) const = 0;
  virtual bool TensorAnswered(int tensor) const = 0;
  // Whether every worker pushed the tensor without a gradient in the last iteration.
  // REQUIRES: TensorAnswered(tensor).
  virtual bool TensorAllAbsent(int tensor) const = 0;
  // Equal numbers, without a Connect or Resume between: equal values of the tensor.
  virtual uint64_t UpdatesOf(int tensor) const = 0;
  virtual AssignmentCounts assignments() const = 0;
  // Why the exchange has failed, or OK.
  virtual absl::Status failure() const = 0;

  virtual void SetHyperparameters(std::vector<Hyperparameters> by_tensor) = 0;
  virtual void SetWeight(float weight) = 0;
  virtual absl::Status PushTensors(absl::Span<const int> tensors, Contribution contribution) = 0;
  virtual absl::Status AwaitTensor(int tensor) = 0;

  virtual absl::Status Initialize(absl::Span<const float> initial,
                                  absl::Span<float> parameters) = 0;
  virtual absl::Status PullState(
      int array,
      const std::function<absl::Status(const Chunk&, const ParameterChunk& message)>& take) = 0;

  virtual absl::StatusOr<std::vector<double>> Mean(const std::string& place,
                                                   const std::vector<double>& value) = 0;
  virtual absl::Status KeepState(StatesByName states) = 0;
  virtual absl::StatusOr<StatesByName> TakeState() = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_EXCHANGE_CORE_PROGRAM_EXCHANGE_H_
