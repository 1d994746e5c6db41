#ifndef EVENSHARD_COMMON_OPTIMIZER_SQUARE_SUM_H_
#define EVENSHARD_COMMON_OPTIMIZER_SQUARE_SUM_H_

#include <array>
#include <cstdint>

namespace evenshard {

// A sum of squares as an integer of 256 bits, which counts a quantum (SquareRule). Integers add up
// to the same in any order and however the elements were cut, which floating-point numbers do not.
// A sum that is too large stays at the largest integer.
class SquareSum {
 public:
  using Limbs = std::array<uint64_t, 4>;

  SquareSum() = default;
  explicit SquareSum(const Limbs& limbs) : limbs_(limbs) {}

  // Adds `value` times 2^shift.
  void Add(uint64_t value, int shift = 0);
  void Add(const SquareSum& other);

  bool is_too_large() const;
  const Limbs& limbs() const { return limbs_; }  // the lowest 64 bits first

 private:
  Limbs limbs_ = {};
};

// How the elements of one run are squared and added up. Immutable.
//
// The square of a float32 is exact in double. It is rounded to a multiple of the quantum, to the
// nearest, ties to even: a function of the element alone. The quantum is a power of two, at most
// max_norm^2 * 2^-24 / elements, so that all roundings together change the square of a norm around
// `max_norm` by less than a float32's precision.
class SquareRule {
 public:
  // REQUIRES: max_norm > 0, elements >= 1.
  SquareRule(double max_norm, int64_t elements);

  // Adds the squares of scale * values[i], each product rounded to float32. Returns whether all of
  // them are finite; otherwise nothing is added. Thread-safe.
  bool Add(const float* values, int64_t n, float scale, SquareSum* sum) const;

  // Returns the sum as a number; infinity if it is too large.
  double Value(const SquareSum& sum) const;

 private:
  void AddOneByOne(const float* values, int64_t n, float scale, SquareSum* sum) const;

  int exponent_;         // of the quantum
  double magic_;         // what is added to it is rounded to a multiple of the quantum
  int32_t least_large_;  // the bits of the least element that AddOneByOne must add
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_OPTIMIZER_SQUARE_SUM_H_
