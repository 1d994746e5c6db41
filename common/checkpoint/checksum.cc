#include "common/checkpoint/checksum.h"

#include <xxhash.h>

namespace evenshard {

uint64_t Checksum(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace evenshard
