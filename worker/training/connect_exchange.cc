#include "worker/training/connect_exchange.h"

#include "worker/ring/grpc/ring_exchange.h"
#include "worker/ring/recovery/recovering_ring.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<TrainingExchange>> ConnectExchange(
    const Exchange::Options& options) {
  const PlannedConfig& config = *options.config;
  if (!config.is_ring()) return Exchange::Connect(options);
  const RingExchange::Options ring = {.config = options.config,
                                      .rank = options.rank,
                                      .clock = options.clock,
                                      .gradients = options.buffers->gradients.span(),
                                      .parameters = options.buffers->parameters.span(),
                                      .on_parameters_written = options.on_parameters_written,
                                      .on_stall = options.on_stall,
                                      .stop = options.stop};
  if (!config.proto().has_recovery()) return RingExchange::Connect(ring);
  if (options.view_link != nullptr) {
    return RecoveringRing::Connect({.ring = ring, .views = options.view_link});
  }
  return config.FieldError("recovery",
                           "is given with topology RING, and nobody can start workers again or say "
                           "where the run is, allowed: a start by launch, or no recovery");
}

}  // namespace evenshard
