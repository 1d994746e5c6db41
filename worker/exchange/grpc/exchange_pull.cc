// What an Exchange receives without pushing gradients: the parameters from which this worker
// continues, and arrays of the shards' state.

#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "worker/exchange/core/parameter_bootstrap.h"
#include "worker/exchange/grpc/exchange.h"
#include "worker/exchange/grpc/for_each_shard.h"

namespace evenshard {

absl::Status Exchange::Pull(absl::Span<float> parameters) {
  return Bootstrap(/*brings_parameters=*/false, {}, parameters);
}

absl::Status Exchange::Initialize(absl::Span<const float> initial, absl::Span<float> parameters) {
  return Bootstrap(/*brings_parameters=*/true, initial, parameters);
}

absl::Status Exchange::Bootstrap(bool brings_parameters, absl::Span<const float> initial,
                                 absl::Span<float> parameters) {
  ParameterBootstrap bootstrap({.config = &config_,
                                .clock = &clock_,
                                .core = &core_,
                                .rank = rank_,
                                .brings_parameters = brings_parameters});
  std::vector<int> all_tensors(config_.model().tensors().size());
  std::iota(all_tensors.begin(), all_tensors.end(), 0);
  while (true) {
    ASSIGN_OR_RETURN(const ParameterBootstrap::Step step, bootstrap.Next());
    switch (step.kind) {
      case ParameterBootstrap::Step::Kind::kExchange:
        RETURN_IF_ERROR(BeginAt(step.iteration, step.exchange, initial, parameters));
        RETURN_IF_ERROR(PushTensors(all_tensors, step.contribution));
        RETURN_IF_ERROR(AwaitAll());
        break;
      case ParameterBootstrap::Step::Kind::kPull:
        if (step.not_before > clock_.Now()) clock_.SleepUntil(step.not_before, stop_);
        RETURN_IF_ERROR(ForEachShard(config_.shards(), [&](int slot) {
          return PullSlot(slot, /*array=*/0,
                          [&](const Chunk& chunk, const ParameterChunk& message) {
                            return transfer_.TakePulled(chunk, message, parameters);
                          });
        }));
        break;
      case ParameterBootstrap::Step::Kind::kDone:
        return absl::OkStatus();
    }
  }
}

absl::Status Exchange::PullState(int array, const Take& take) {
  if (is_begun()) return absl::FailedPreconditionError("an iteration has begun");
  const uint64_t iteration = round().next_iteration();
  const bool is_sync = config_.is_synchronous();
  const auto take_present = [&](const Chunk& chunk, const ParameterChunk& message) -> absl::Status {
    if (message.data().empty()) return absl::OkStatus();
    if (!is_sync || message.iteration() == iteration) return take(chunk, message);
    return absl::AbortedError(absl::StrCat("chunk ", chunk.id, " is at iteration ",
                                           message.iteration(), ", and this worker at ",
                                           iteration));
  };
  return ForEachShard(config_.shards(),
                      [&](int slot) { return PullSlot(slot, array, take_present); });
}

absl::Status Exchange::PullSlot(int slot, int array, const Take& take) {
  SlotPull pull = core_.StartPull();
  while (true) {
    RETURN_IF_ERROR(core_.AwaitConnected(slot));
    const absl::Status pulled = connections_[slot]->control()->Pull(array, take);
    ASSIGN_OR_RETURN(const std::optional<absl::Time> again, pull.Ended(pulled));
    if (!again.has_value()) return absl::OkStatus();
    clock_.SleepUntil(*again, stop_);
  }
}

}  // namespace evenshard
