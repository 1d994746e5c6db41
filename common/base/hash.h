#ifndef EVENSHARD_COMMON_BASE_HASH_H_
#define EVENSHARD_COMMON_BASE_HASH_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace evenshard {

// The 64-bit FNV-1a hash (Fowler, Noll, Vo). Unlike absl::Hash, it is the same in every process and
// every build. It is meant for fingerprints and offers no protection against attackers.
constexpr uint64_t Fnv1a64(absl::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  }
  return hash;
}

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_HASH_H_
