#ifndef EVENSHARD_COMMON_WIRE_ERROR_FEEDBACK_H_
#define EVENSHARD_COMMON_WIRE_ERROR_FEEDBACK_H_

#include <cstdint>

namespace evenshard {

// Error feedback (Karimireddy et al., arXiv:1901.09847) for what travels in fewer bits: of the
// values g and a residual e, C(g + e) is sent, and e becomes g + e - D(C(g + e)), with C and D for
// encoding and decoding. All arrays have `n` elements and do not overlap.

// Sets e to `sum` - `sent`, that is g + e - D(C(g + e)), where that is finite. Elsewhere e stays.
void KeepRest(const float* sum, const float* sent, int64_t n, float* residual);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_WIRE_ERROR_FEEDBACK_H_
