#include "common/non_finite.h"

#include <algorithm>

#include "common/vectorized.h"

namespace ps {
namespace {

typedef uint32_t UnalignedBits __attribute__((aligned(1), may_alias));

constexpr uint32_t kFloatExponent = 0x7f800000;

constexpr int64_t kBlock = 1024;  // elements searched without a branch

PS_VECTORIZED
bool AnyWithAllOf(const UnalignedBits* values, int64_t n, uint32_t bits) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (values[i] & bits) == bits;
  return found != 0;
}

PS_VECTORIZED
bool AnyWithAllOf(const UnalignedHalf* values, int64_t n, uint16_t bits) {
  uint16_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (values[i] & bits) == bits;
  return found != 0;
}

template <typename Values, typename Bits>
int64_t FindWithAllOf(Values values, int64_t n, Bits bits) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    if (!AnyWithAllOf(values + begin, std::min(kBlock, n - begin), bits)) continue;
    int64_t first = begin;
    while ((values[first] & bits) != bits) ++first;
    return first;
  }
  return -1;
}

}  // namespace

int64_t FindNonFinite(const UnalignedFloat* values, int64_t n) {
  return FindWithAllOf(reinterpret_cast<const UnalignedBits*>(values), n, kFloatExponent);
}

int64_t FindNonFinite(const UnalignedHalf* values, int64_t n, uint16_t exponent_bits) {
  return FindWithAllOf(values, n, exponent_bits);
}

}  // namespace ps
