#ifndef EVENSHARD_COMMON_BASE_RANDOM_H_
#define EVENSHARD_COMMON_BASE_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace evenshard {

// A counter-based random number generator, Philox4x32-10 (common/base/philox.h). Every number is a
// pure function of seed, stream and index, so it does not depend on the order of evaluation, the
// partitioning or the number of processes. Immutable and cheap to copy.
class CounterRandom {
 public:
  CounterRandom(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  // The 64-bit FNV-1a hash of a name selects the stream.
  CounterRandom(uint64_t seed, absl::string_view stream);

  // Each of the following derives a number from the same bits, those at `index` in the stream.
  uint32_t Bits(uint64_t index) const;
  float Uniform(uint64_t index) const;  // [0, 1), a multiple of 2^-24
  // Writes Uniform(first), Uniform(first + 1), ... to `out`, faster than one call for each.
  void FillUniform(uint64_t first, absl::Span<float> out) const;
  // Standard normal, by the Box-Muller transform of the bits at index and index ^ 1. It is the same
  // number on every processor.
  float Normal(uint64_t index) const;
  void FillNormal(uint64_t first, absl::Span<float> out) const;  // as FillUniform
  // Nearly uniform on the integers in [0, bound): the probabilities of two values differ by at most
  // 2^-32. REQUIRES: 1 <= bound < 2^32.
  uint64_t Below(uint64_t index, uint64_t bound) const;

 private:
  std::array<uint32_t, 4> Block(uint64_t block) const;

  uint64_t seed_;
  uint64_t stream_;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_RANDOM_H_
