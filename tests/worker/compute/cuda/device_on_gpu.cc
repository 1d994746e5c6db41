#include <cstdio>

#include "tests/worker/compute/cuda/cuda_net.h"
#include "worker/compute/cuda/error.h"

namespace evenshard {

const bool kOnStandIn = false;

bool HasDevice() {
  try {
    if (CudaDevice::Count() > 0) return true;
    std::puts("SKIPPED: this machine has no CUDA device");
  } catch (const CudaError& error) {
    std::printf("SKIPPED: %s\n", error.what());
  }
  return false;
}

}  // namespace evenshard
