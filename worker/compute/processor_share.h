#ifndef EVENSHARD_WORKER_COMPUTE_PROCESSOR_SHARE_H_
#define EVENSHARD_WORKER_COMPUTE_PROCESSOR_SHARE_H_

#include <algorithm>
#include <thread>

namespace evenshard {

// Returns the number of threads for a worker whose config does not set it: the machine's processors
// divided by the number of workers, but at least 1.
inline int ProcessorShare(int workers) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / workers);
}

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_COMPUTE_PROCESSOR_SHARE_H_
