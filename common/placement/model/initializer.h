#ifndef EVENSHARD_COMMON_PLACEMENT_MODEL_INITIALIZER_H_
#define EVENSHARD_COMMON_PLACEMENT_MODEL_INITIALIZER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/placement/model/model.h"

namespace evenshard {

// Writes the initial values of elements [begin, begin + out.size()) of `tensor` to `out`. A value
// depends only on the seed, the tensor's name and the element's index, so it is the same however
// the tensor is cut.
void InitializeParameters(uint64_t seed, const Tensor& tensor, int64_t begin,
                          absl::Span<float> out);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_MODEL_INITIALIZER_H_
