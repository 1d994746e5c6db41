#include "worker/training/connect_exchange.h"

#include "worker/ring/grpc/ring_exchange.h"

namespace evenshard {

absl::StatusOr<std::unique_ptr<TrainingExchange>> ConnectExchange(
    const Exchange::Options& options) {
  if (!options.config->is_ring()) return Exchange::Connect(options);
  return RingExchange::Connect({.config = options.config,
                                .rank = options.rank,
                                .clock = options.clock,
                                .gradients = options.buffers->gradients.span(),
                                .parameters = options.buffers->parameters.span(),
                                .on_parameters_written = options.on_parameters_written,
                                .on_stall = options.on_stall,
                                .stop = options.stop});
}

}  // namespace evenshard
