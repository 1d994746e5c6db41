#ifndef EVENSHARD_COMMON_PROCESS_RESIDENT_MEMORY_H_
#define EVENSHARD_COMMON_PROCESS_RESIDENT_MEMORY_H_

#include <cstdint>

namespace evenshard {

// Returns the bytes of this process that are resident in memory, or 0 if /proc/self/statm cannot be
// read.
uint64_t ResidentBytes();

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PROCESS_RESIDENT_MEMORY_H_
