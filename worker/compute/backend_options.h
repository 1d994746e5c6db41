#ifndef EVENSHARD_WORKER_COMPUTE_BACKEND_OPTIONS_H_
#define EVENSHARD_WORKER_COMPUTE_BACKEND_OPTIONS_H_

#include <stop_token>

#include "common/base/clock.h"
#include "worker/trace/trace.h"

namespace evenshard {

// The settings of a worker's backend that are not part of its config.
struct BackendOptions {
  int rank = 0;
  const Clock* clock = nullptr;  // the clock of an emulated device
  Trace* trace = nullptr;        // records the device's work; null for no trace
  std::stop_token stop = {};     // ends a pass of an emulated device
};

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_BACKEND_OPTIONS_H_
