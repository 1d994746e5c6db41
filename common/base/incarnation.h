#ifndef EVENSHARD_COMMON_BASE_INCARNATION_H_
#define EVENSHARD_COMMON_BASE_INCARNATION_H_

#include <cstdint>

#include "absl/random/random.h"

namespace evenshard {

// A random number, never 0, that tells this start of a process from any other.
inline uint64_t NewIncarnation() {
  absl::BitGen random;
  return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, UINT64_MAX);
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_INCARNATION_H_
