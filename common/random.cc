#include "common/random.h"

#include <cmath>
#include <numbers>

#include "common/hash.h"

namespace ps {
namespace {

constexpr uint32_t Low(uint64_t x) { return static_cast<uint32_t>(x); }
constexpr uint32_t High(uint64_t x) { return static_cast<uint32_t>(x >> 32); }

// The upper 24 bits: as many as a float holds exactly.
float ToUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {High(product1) ^ counter[1] ^ key[0], Low(product1),
               High(product0) ^ counter[3] ^ key[1], Low(product0)};
    key = {key[0] + 0x9E3779B9, key[1] + 0xBB67AE85};
  }
  return counter;
}

CounterRandom::CounterRandom(uint64_t seed, absl::string_view stream)
    : CounterRandom(seed, Fnv1a64(stream)) {}

std::array<uint32_t, 4> CounterRandom::Block(uint64_t block) const {
  return Philox4x32({Low(block), High(block), Low(stream_), High(stream_)},
                    {Low(seed_), High(seed_)});
}

uint32_t CounterRandom::Bits(uint64_t index) const { return Block(index / 4)[index % 4]; }

float CounterRandom::Uniform(uint64_t index) const { return ToUniform(Bits(index)); }

void CounterRandom::FillUniform(uint64_t first, absl::Span<float> out) const {
  std::array<uint32_t, 4> block = Block(first / 4);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = first + i;
    if (index % 4 == 0) block = Block(index / 4);
    out[i] = ToUniform(block[index % 4]);
  }
}

float CounterRandom::Normal(uint64_t index) const {
  const std::array<uint32_t, 4> block = Block(index / 4);
  const int pair = index % 4 & 2;
  const double above_zero = (block[pair] + 1.0) * 0x1p-32;
  const double angle = 2 * std::numbers::pi * 0x1p-32 * block[pair + 1];
  const double radius = std::sqrt(-2 * std::log(above_zero));
  return static_cast<float>(radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle)));
}

uint64_t CounterRandom::Below(uint64_t index, uint64_t bound) const {
  return Bits(index) * bound >> 32;
}

}  // namespace ps
