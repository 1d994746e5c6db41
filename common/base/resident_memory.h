#ifndef PS_COMMON_BASE_RESIDENT_MEMORY_H_
#define PS_COMMON_BASE_RESIDENT_MEMORY_H_

#include <cstdint>

namespace ps {

// The resident memory of this process, in bytes, from /proc/self/statm; 0 where there
// is none.
uint64_t ResidentBytes();

}  // namespace ps

#endif  // PS_COMMON_BASE_RESIDENT_MEMORY_H_
