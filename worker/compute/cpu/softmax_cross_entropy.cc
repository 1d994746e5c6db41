#include "worker/compute/cpu/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

namespace evenshard {

BatchResult SoftmaxCrossEntropy(absl::Span<const float> scores, absl::Span<const int32_t> labels,
                                int64_t classes, absl::Span<float> gradient) {
  const double images = static_cast<double>(labels.size());
  BatchResult result;
  for (size_t image = 0; image < labels.size(); ++image) {
    const absl::Span<const float> row = scores.subspan(image * classes, classes);
    const int32_t label = labels[image];
    // Subtracting the largest score keeps exp() at 1 or below.
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    bool correct = true;
    for (int64_t c = 0; c < classes; ++c) {
      sum += std::exp(row[c] - largest);
      if (c != label && !(row[c] < row[label])) correct = false;
    }
    result.loss += (std::log(sum) - (row[label] - largest)) / images;
    result.correct += correct ? 1 : 0;
    if (gradient.empty()) continue;
    for (int64_t c = 0; c < classes; ++c) {
      const double softmax = std::exp(row[c] - largest) / sum;
      gradient[image * classes + c] = static_cast<float>((softmax - (c == label ? 1 : 0)) / images);
    }
  }
  return result;
}

}  // namespace evenshard
