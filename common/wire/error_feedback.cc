#include "common/wire/error_feedback.h"

#include <bit>

#include "common/base/element_loop.h"

namespace evenshard {
namespace {

constexpr uint32_t kExponent = 0x7f800000;

}  // namespace

EVENSHARD_VECTORIZED
void KeepRest(const float* __restrict sum, const float* __restrict sent, int64_t n,
              float* __restrict residual) {
  for (int64_t i = 0; i < n; ++i) {
    const float rest = sum[i] - sent[i];
    const bool is_finite = (std::bit_cast<uint32_t>(rest) & kExponent) != kExponent;
    residual[i] = is_finite ? rest : residual[i];
  }
}

}  // namespace evenshard
