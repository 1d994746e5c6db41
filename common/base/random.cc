#include "common/base/random.h"

#include <cmath>
#include <numbers>

#include "common/base/hash.h"
#include "common/base/philox.h"

namespace ps {

CounterRandom::CounterRandom(uint64_t seed, absl::string_view stream)
    : CounterRandom(seed, Fnv1a64(stream)) {}

std::array<uint32_t, 4> CounterRandom::Block(uint64_t block) const {
  return PhiloxBlock(seed_, stream_, block);
}

uint32_t CounterRandom::Bits(uint64_t index) const { return Block(index / 4)[index % 4]; }

float CounterRandom::Uniform(uint64_t index) const { return PhiloxUniform(Bits(index)); }

void CounterRandom::FillUniform(uint64_t first, absl::Span<float> out) const {
  std::array<uint32_t, 4> block = Block(first / 4);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t index = first + i;
    if (index % 4 == 0) block = Block(index / 4);
    out[i] = PhiloxUniform(block[index % 4]);
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
