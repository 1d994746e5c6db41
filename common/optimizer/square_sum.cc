#include "common/optimizer/square_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/base/element_loop.h"

namespace evenshard {
namespace {

// Squares that are below 2^kFastBits quanta can be rounded by one addition, and those of a block of
// kBlock elements add up to less than 2^63.
constexpr int kFastBits = 50;
constexpr int64_t kBlock = 8192;

constexpr int32_t kInfinityBits = 0x7f800000;

struct Block {
  uint64_t quanta;  // of the squares, if no element is large
  int32_t largest;  // the bits of the largest magnitude
};

// The bits of a float without its sign grow with its magnitude, and are compared as integers,
// because NaNs have no order. The last bits of x are the rounded square: magic is 1.5 * 2^52
// quanta.
EVENSHARD_VECTORIZED
Block SquaresOf(const float* __restrict values, int64_t n, float scale, double magic) {
  Block block{};
  for (int64_t i = 0; i < n; ++i) {
    const float element = scale * values[i];
    block.largest = std::max(block.largest, std::bit_cast<int32_t>(element) & 0x7fffffff);
    const double wide = element;
    const double x = wide * wide + magic;
    block.quanta += std::bit_cast<uint64_t>(x) - std::bit_cast<uint64_t>(magic);
  }
  return block;
}

}  // namespace

void SquareSum::Add(uint64_t value, int shift) {
  SquareSum other;
  const unsigned limb = shift / 64;
  const unsigned rest = shift % 64;
  const uint64_t high = rest == 0 ? 0 : value >> (64 - rest);
  if (limb >= limbs_.size() || (high != 0 && limb + 1 == limbs_.size())) {
    limbs_.fill(UINT64_MAX);
    return;
  }
  other.limbs_[limb] = value << rest;
  if (high != 0) other.limbs_[limb + 1] = high;
  Add(other);
}

void SquareSum::Add(const SquareSum& other) {
  bool carry = false;
  for (size_t i = 0; i < limbs_.size(); ++i) {
    const bool carried = __builtin_add_overflow(limbs_[i], uint64_t{carry}, &limbs_[i]);
    carry = __builtin_add_overflow(limbs_[i], other.limbs_[i], &limbs_[i]) || carried;
  }
  if (carry) limbs_.fill(UINT64_MAX);
}

bool SquareSum::is_too_large() const { return limbs_.back() == UINT64_MAX; }

SquareRule::SquareRule(double max_norm, int64_t elements) {
  constexpr int kPrecision = 24;
  exponent_ = std::ilogb(max_norm * max_norm / static_cast<double>(elements)) - kPrecision;
  magic_ = std::ldexp(1.5, 52 + exponent_);
  // An element below 2^h, with 2 * h <= kFastBits + exponent_, has a square that is small enough.
  const double bound = std::ldexp(1.0, static_cast<int>(std::floor((kFastBits + exponent_) / 2.0)));
  const double most = std::numeric_limits<float>::max();
  least_large_ = bound > most ? kInfinityBits : std::bit_cast<int32_t>(static_cast<float>(bound));
}

bool SquareRule::Add(const float* values, int64_t n, float scale, SquareSum* sum) const {
  SquareSum added;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    const Block block = SquaresOf(values + begin, size, scale, magic_);
    if (block.largest < least_large_) {
      added.Add(block.quanta);
    } else if (block.largest < kInfinityBits) {
      AddOneByOne(values + begin, size, scale, &added);
    } else {
      return false;
    }
  }
  sum->Add(added);
  return true;
}

void SquareRule::AddOneByOne(const float* values, int64_t n, float scale, SquareSum* sum) const {
  for (int64_t i = 0; i < n; ++i) {
    const double element = scale * values[i];
    // Exact: the exponents of squares and quanta are far from the limits of double.
    const double quanta = std::ldexp(element * element, -exponent_);
    int exponent = 0;
    const double fraction = std::frexp(quanta, &exponent);
    constexpr int kBits = std::numeric_limits<double>::digits;
    if (exponent <= kBits) {
      sum->Add(static_cast<uint64_t>(std::nearbyint(quanta)));
    } else {  // an integer, since the square has 48 bits at most
      sum->Add(static_cast<uint64_t>(std::ldexp(fraction, kBits)), exponent - kBits);
    }
  }
}

double SquareRule::Value(const SquareSum& sum) const {
  if (sum.is_too_large()) return std::numeric_limits<double>::infinity();
  double value = 0;
  for (size_t i = sum.limbs().size(); i-- > 0;) {
    value = std::ldexp(value, 64) + static_cast<double>(sum.limbs()[i]);
  }
  return std::ldexp(value, exponent_);
}

}  // namespace evenshard
