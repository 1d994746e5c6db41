#include "common/model/initializer.h"

#include <algorithm>
#include <cmath>

#include "common/base/random.h"

namespace ps {

void InitializeParameters(uint64_t seed, const Tensor& tensor, int64_t begin,
                          absl::Span<float> out) {
  switch (tensor.initializer) {
    case Initializer::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case Initializer::kOnes:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case Initializer::kHeUniform: {
      const float bound = static_cast<float>(std::sqrt(6.0 / static_cast<double>(tensor.fan_in)));
      CounterRandom(seed, tensor.name).FillUniform(begin, out);
      for (float& value : out) value = bound * (2 * value - 1);  // the term in brackets is exact
      return;
    }
  }
}

}  // namespace ps
