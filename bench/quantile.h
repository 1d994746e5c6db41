#ifndef EVENSHARD_BENCH_QUANTILE_H_
#define EVENSHARD_BENCH_QUANTILE_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace evenshard {

// Returns the q-quantile of `values`, interpolated linearly between neighbours.
// REQUIRES: 0 <= q <= 1; `values` is not empty.
inline double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const double below = std::floor(place);
  const size_t index = static_cast<size_t>(below);
  const size_t next = std::min(index + 1, values.size() - 1);
  return values[index] + (place - below) * (values[next] - values[index]);
}

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_QUANTILE_H_
