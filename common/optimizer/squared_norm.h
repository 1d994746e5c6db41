#ifndef EVENSHARD_COMMON_OPTIMIZER_SQUARED_NORM_H_
#define EVENSHARD_COMMON_OPTIMIZER_SQUARED_NORM_H_

#include <array>
#include <cstdint>

#include "common/base/element_loop.h"

namespace evenshard {

// The square of an L2 norm in double, whatever its size. Element i is added to sum i % kLanes, and
// the sums are added up in the end: so the result depends neither on the runs in which the elements
// come nor on the processor. SquareSum does not depend on the order either, but needs to know of
// what size a norm is. Not thread-safe.
class SquaredNorm {
 public:
  static constexpr int kLanes = 16;

  // Adds the squares of `n` elements from index `first` on. Runs must come in order.
  void Add(int64_t first, const UnalignedFloat* values, int64_t n);

  // Infinity or NaN only if an element is.
  double value() const;

 private:
  std::array<double, kLanes> sums_ = {};
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_OPTIMIZER_SQUARED_NORM_H_
