#include "server/aggregate.h"

#include <algorithm>
#include <cstring>

#include "server/vectorized.h"

namespace ps {
namespace {

typedef uint32_t UnalignedBits __attribute__((aligned(1), may_alias));

// All ones in the exponent of a float: NaN or infinity.
constexpr uint32_t kExponent = 0x7f800000;

bool IsNonFinite(uint32_t bits) { return (bits & kExponent) == kExponent; }

constexpr int64_t kBlock = 1024;  // elements searched without a branch

PS_VECTORIZED
bool AnyNonFinite(const UnalignedBits* bits, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= IsNonFinite(bits[i]);
  return found != 0;
}

}  // namespace

void CopyGradient(float* sum, const UnalignedFloat* gradient, int64_t n) {
  std::memcpy(sum, gradient, n * sizeof(float));
}

PS_VECTORIZED
void AddGradient(float* __restrict sum, const UnalignedFloat* __restrict gradient, int64_t n) {
  for (int64_t i = 0; i < n; ++i) sum[i] += gradient[i];
}

int64_t FindNonFinite(const UnalignedFloat* gradient, int64_t n) {
  const auto* bits = reinterpret_cast<const UnalignedBits*>(gradient);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    if (!AnyNonFinite(bits + begin, std::min(kBlock, n - begin))) continue;
    int64_t first = begin;
    while (!IsNonFinite(bits[first])) ++first;
    return first;
  }
  return -1;
}

}  // namespace ps
