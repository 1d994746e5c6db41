#ifndef PS_COMMON_RANDOM_H_
#define PS_COMMON_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ps {

// Counter-based random numbers, Philox4x32-10 (common/philox.h). Every number is a pure
// function of (seed, stream, index), so no order of evaluation, partitioning or
// number of processes changes it. Immutable, cheap to copy.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  // A stream with a name: its 64-bit FNV-1a hash.
  CounterRandom(uint64_t seed, absl::string_view stream);

  // The `index`-th number of the stream, in several forms of the same bits.
  uint32_t Bits(uint64_t index) const;
  float Uniform(uint64_t index) const;  // [0, 1), a multiple of 2^-24
  // The uniform numbers first, first + 1, ...; faster than one by one.
  void FillUniform(uint64_t first, absl::Span<float> out) const;
  // Standard normal, by Box-Muller from the numbers index and index ^ 1.
  float Normal(uint64_t index) const;
  // [0, bound), 1 <= bound < 2^32. No value is more likely than another by more than 2^-32.
  uint64_t Below(uint64_t index, uint64_t bound) const;

 private:
  std::array<uint32_t, 4> Block(uint64_t block) const;

  uint64_t seed_;
  uint64_t stream_;
};

}  // namespace ps

#endif  // PS_COMMON_RANDOM_H_
