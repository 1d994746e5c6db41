#ifndef PS_COMMON_BASE_UNALIGNED_H_
#define PS_COMMON_BASE_UNALIGNED_H_

#include <cstdint>

namespace ps {

// Elements at an address of any alignment, because received data starts where the message header
// ends. Declare pointers to them by these names: `auto` and template arguments drop the alignment.
typedef float UnalignedFloat __attribute__((aligned(1), may_alias));
typedef uint16_t UnalignedHalf __attribute__((aligned(1), may_alias));  // any 16-bit format

}  // namespace ps

#endif  // PS_COMMON_BASE_UNALIGNED_H_
