#ifndef EVENSHARD_COMMON_CONFIG_ASYNCHRONY_H_
#define EVENSHARD_COMMON_CONFIG_ASYNCHRONY_H_

#include <string>

#include "proto/config.pb.h"

namespace evenshard {

// What becomes of a gradient under ASYNC and SSP (Asynchrony), with its defaults, which depend on
// the optimizer, and so on what workers bring.

// Whether the learning rate is divided by the staleness (Asynchrony.BY_STALENESS).
bool DividesByStaleness(const ClusterConfig& config);

// Whether each worker's gradients have a velocity of their own (Asynchrony.PER_WORKER).
bool HasVelocityPerWorker(const ClusterConfig& config);

// What is done to a stale gradient; NONE with one worker, whose gradients are never stale.
Asynchrony::Correction CorrectionOf(const ClusterConfig& config);
// Its lambda, as set or by default; 0 if it has none.
float LambdaOf(const Asynchrony& asynchrony);
// Whether it has a mean square for each parameter, which belongs to the state of the shards.
constexpr bool HasMeanSquare(Asynchrony::Correction correction) {
  return correction == Asynchrony::ADAPTIVE_DELAY_COMPENSATION ||
         correction == Asynchrony::GAP_AWARE;
}

// Returns why training by this config is known to diverge, or "".
std::string AsynchronyWarning(const ClusterConfig& config);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_ASYNCHRONY_H_
