#include "worker/training/connect_exchange.h"

#include "worker/ring/grpc/ring_exchange.h"
#include "worker/ring/recovery/recovering_ring.h"

namespace evenshard {
namespace {

RingExchange::Options RingOptionsOf(const Exchange::Options& options) {
  return {.config = options.config,
          .rank = options.rank,
          .clock = options.clock,
          .gradients = options.buffers->gradients.span(),
          .parameters = options.buffers->parameters.span(),
          .on_parameters_written = options.on_parameters_written,
          .on_stall = options.on_stall,
          .while_waiting = options.while_waiting,
          .stop = options.stop};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingExchange>> ConnectExchange(
    const Exchange::Options& options) {
  const PlannedConfig& config = *options.config;
  if (!config.is_ring()) return Exchange::Connect(options);
  if (!config.proto().has_recovery()) return RingExchange::Connect(RingOptionsOf(options));
  if (options.view_link != nullptr) {
    return RecoveringRing::Connect({.ring = RingOptionsOf(options), .views = options.view_link});
  }
  return config.FieldError("recovery",
                           "is given with topology RING, and nobody can start workers again or say "
                           "where the run is, allowed: a start by launch, or no recovery");
}

absl::StatusOr<std::unique_ptr<ProgramExchange>> ConnectProgram(const Exchange::Options& options) {
  if (!options.config->is_ring()) return Exchange::Connect(options);
  return RingExchange::Connect(RingOptionsOf(options));
}

}  // namespace evenshard
