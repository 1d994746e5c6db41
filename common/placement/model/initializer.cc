#include "common/placement/model/initializer.h"

#include <algorithm>

#include "common/base/random.h"

namespace evenshard {

void InitializeParameters(uint64_t seed, const Tensor& tensor, int64_t begin,
                          absl::Span<float> out) {
  const float scale = static_cast<float>(tensor.initializer.scale);
  const CounterRandom random(seed, tensor.name);
  switch (tensor.initializer.kind) {
    case Initializer::kZeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case Initializer::kOnes:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case Initializer::kUniform:
      random.FillUniform(begin, out);
      for (float& value : out) value = scale * (2 * value - 1);  // the term in brackets is exact
      return;
    case Initializer::kNormal:
      random.FillNormal(begin, out);
      for (float& value : out) value *= scale;
      return;
  }
}

}  // namespace evenshard
