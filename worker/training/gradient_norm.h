#ifndef EVENSHARD_WORKER_TRAINING_GRADIENT_NORM_H_
#define EVENSHARD_WORKER_TRAINING_GRADIENT_NORM_H_

#include <cmath>

#include "absl/types/span.h"

namespace evenshard {

// Returns the L2 norm over all elements. The squares are summed in double and cannot overflow, so
// the norm is finite if and only if every element is.
inline double GlobalNorm(absl::Span<const float> gradient) {
  // Several independent sums keep additions from waiting for one another.
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= gradient.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const double x = gradient[i + lane];
      sums[lane] += x * x;
    }
  }
  for (; i < gradient.size(); ++i) sums[0] += static_cast<double>(gradient[i]) * gradient[i];
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

// Multiplies every element by `factor`.
inline void Scale(float factor, absl::Span<float> gradient) {
  for (float& element : gradient) element *= factor;
}

}  // namespace evenshard

#endif  // EVENSHARD_WORKER_TRAINING_GRADIENT_NORM_H_
