#ifndef PS_BENCH_QUANTILE_H_
#define PS_BENCH_QUANTILE_H_

#include <algorithm>
#include <cmath>
#include <vector>

namespace ps {

// The value below which a fraction `q` of the `values` lies, between two of them in
// proportion. REQUIRES: there are values.
inline double Quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  const double place = q * static_cast<double>(values.size() - 1);
  const double below = std::floor(place);
  const size_t index = static_cast<size_t>(below);
  const size_t next = std::min(index + 1, values.size() - 1);
  return values[index] + (place - below) * (values[next] - values[index]);
}

}  // namespace ps

#endif  // PS_BENCH_QUANTILE_H_
