#ifndef EVENSHARD_SERVER_RPC_HELD_BYTES_H_
#define EVENSHARD_SERVER_RPC_HELD_BYTES_H_

#include <cstddef>
#include <limits>

#include "common/placement/planned_config.h"

namespace evenshard {

// Returns how many bytes of gradients a stream may hold (ReadGate). Under QUORUM a worker's whole
// push is held until it is known whether it counts, and the worker pushes no more until then.
inline size_t HeldBytes(const PlannedConfig& config) {
  return config.has_quorum() ? std::numeric_limits<size_t>::max()
                             : static_cast<size_t>(config.proto().limits().held_bytes());
}

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_HELD_BYTES_H_
