#include "common/optimizer/squared_norm.h"

#include <algorithm>

namespace evenshard {
namespace {

constexpr int kLanes = SquaredNorm::kLanes;

double Square(float element) {
  const double wide = element;
  return wide * wide;
}

// `n` is a multiple of kLanes, and the first element belongs to the first sum.
EVENSHARD_VECTORIZED
void AddSquares(const UnalignedFloat* __restrict values, int64_t n, double* __restrict sums) {
  double own[kLanes];
  std::copy_n(sums, kLanes, own);
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double wide = values[i + lane];
      own[lane] += wide * wide;
    }
  }
  std::copy_n(own, kLanes, sums);
}

}  // namespace

void SquaredNorm::Add(int64_t first, const UnalignedFloat* values, int64_t n) {
  int64_t i = 0;
  const auto add_until = [&](int64_t end) {
    for (; i < end; ++i) sums_[(first + i) % kLanes] += Square(values[i]);
  };
  add_until(std::min(n, (kLanes - first % kLanes) % kLanes));
  const int64_t whole = (n - i) / kLanes * kLanes;
  AddSquares(values + i, whole, sums_.data());
  i += whole;
  add_until(n);
}

double SquaredNorm::value() const {
  double value = 0;
  for (const double sum : sums_) value += sum;
  return value;
}

}  // namespace evenshard
