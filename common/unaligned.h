#ifndef PS_COMMON_UNALIGNED_H_
#define PS_COMMON_UNALIGNED_H_

#include <cstdint>

namespace ps {

// Elements at any address: received data starts where the message header ends. A pointer to one
// keeps its type only where it is named: `auto` and template arguments forget the alignment.
typedef float UnalignedFloat __attribute__((aligned(1), may_alias));
typedef uint16_t UnalignedHalf __attribute__((aligned(1), may_alias));  // any 16-bit format

}  // namespace ps

#endif  // PS_COMMON_UNALIGNED_H_
