#ifndef EVENSHARD_WORKER_TRAINING_LOADER_THREADS_H_
#define EVENSHARD_WORKER_TRAINING_LOADER_THREADS_H_

#include "common/placement/planned_config.h"
#include "worker/compute/processor_share.h"

namespace evenshard {

// Returns the number of threads that load data. If a device computes, the processors are free for
// it.
inline int LoaderThreads(const PlannedConfig& config) {
  const int threads = config.proto().data().threads();
  if (threads > 0 || config.proto().compute().backend() != Compute::CUDA) return threads;
  return ProcessorShare(config.workers());
}

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_LOADER_THREADS_H_
