#include "common/wire/non_finite.h"

#include <algorithm>
#include <bit>

#include "common/base/element_loop.h"

namespace evenshard {
namespace {

typedef uint32_t UnalignedBits __attribute__((aligned(1), may_alias));

constexpr uint32_t kFloatExponent = 0x7f800000;

constexpr int64_t kBlock = 1024;  // elements that are searched without a branch

EVENSHARD_VECTORIZED
bool AnyWithAllOf(const UnalignedBits* values, int64_t n, uint32_t bits) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (values[i] & bits) == bits;
  return found != 0;
}

EVENSHARD_VECTORIZED
bool AnyWithAllOf(const UnalignedHalf* values, int64_t n, uint16_t bits) {
  uint16_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= (values[i] & bits) == bits;
  return found != 0;
}

bool IsNonFinite(float value) {
  return (std::bit_cast<uint32_t>(value) & kFloatExponent) == kFloatExponent;
}

EVENSHARD_VECTORIZED
bool AnyNonFiniteSum(const float* values, const UnalignedFloat* addend, int64_t n) {
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= IsNonFinite(values[i] + addend[i]);
  return found != 0;
}

// Returns the index of the first of `n` elements for which `is` holds, or -1. `any` tells whether
// there is one in a block; where another process has put something else there meanwhile, the
// block's first element stands for it.
template <typename Any, typename Is>
int64_t FindFirst(int64_t n, Any any, Is is) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    if (!any(begin, end - begin)) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (is(i)) return i;
    }
    return begin;
  }
  return -1;
}

}  // namespace

int64_t FindNonFinite(const UnalignedFloat* values, int64_t n) {
  const UnalignedBits* bits = reinterpret_cast<const UnalignedBits*>(values);
  return FindFirst(
      n,
      [&](int64_t begin, int64_t size) { return AnyWithAllOf(bits + begin, size, kFloatExponent); },
      [&](int64_t i) { return (bits[i] & kFloatExponent) == kFloatExponent; });
}

int64_t FindNonFinite(const UnalignedHalf* values, int64_t n, uint16_t exponent_bits) {
  return FindFirst(
      n,
      [&](int64_t begin, int64_t size) {
        return AnyWithAllOf(values + begin, size, exponent_bits);
      },
      [&](int64_t i) { return (values[i] & exponent_bits) == exponent_bits; });
}

int64_t FindNonFiniteSum(const float* values, const UnalignedFloat* addend, int64_t n) {
  return FindFirst(
      n,
      [&](int64_t begin, int64_t size) {
        return AnyNonFiniteSum(values + begin, addend + begin, size);
      },
      [&](int64_t i) { return IsNonFinite(values[i] + addend[i]); });
}

}  // namespace evenshard
