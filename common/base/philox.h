#ifndef EVENSHARD_COMMON_BASE_PHILOX_H_
#define EVENSHARD_COMMON_BASE_PHILOX_H_

#include <array>
#include <cstdint>

namespace evenshard {

// The counter-based generator behind CounterRandom. Everything here is constexpr, so that device
// code can call it too.

// The 10-round Philox4x32 block function: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As
// Easy as 1, 2, 3", SC 2011.
constexpr std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

// Returns the four 32-bit numbers of the stream from index 4 * block on.
constexpr std::array<uint32_t, 4> PhiloxBlock(uint64_t seed, uint64_t stream, uint64_t block) {
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// Maps 32 random bits to a multiple of 2^-24 in [0, 1). Only the upper 24 bits are used, as many as
// a float represents exactly.
constexpr float PhiloxUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_PHILOX_H_
