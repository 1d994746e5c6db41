#ifndef PS_COMMON_INITIALIZER_H_
#define PS_COMMON_INITIALIZER_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/model.h"

namespace ps {

// Writes the initial values of elements [begin, begin + out.size()) of `tensor`.
// A value depends on (seed, tensor name, element index) only, never on how the
// tensor was cut.
void InitializeParameters(uint64_t seed, const Tensor& tensor, int64_t begin,
                          absl::Span<float> out);

}  // namespace ps

#endif  // PS_COMMON_INITIALIZER_H_
