#ifndef EVENSHARD_COMMON_CHECKPOINT_CHECKSUM_H_
#define EVENSHARD_COMMON_CHECKPOINT_CHECKSUM_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace evenshard {

// XXH3-64 (github.com/Cyan4973/xxHash), with which checkpoints find flipped and torn bytes. It
// offers no protection against attackers.
uint64_t Checksum(absl::string_view bytes);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CHECKPOINT_CHECKSUM_H_
