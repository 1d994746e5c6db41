#ifndef PS_COMMON_UNALIGNED_H_
#define PS_COMMON_UNALIGNED_H_

namespace ps {

// A float at any address: received data starts where the message header ends.
typedef float UnalignedFloat __attribute__((aligned(1), may_alias));

}  // namespace ps

#endif  // PS_COMMON_UNALIGNED_H_
