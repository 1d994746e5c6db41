#include "server/store/update_rounding.h"

#include <algorithm>

#include "common/base/element_loop.h"
#include "common/optimizer/aggregate.h"
#include "common/wire/encoding.h"
#include "common/wire/error_feedback.h"

namespace evenshard {
namespace {

EVENSHARD_VECTORIZED
void Subtract(const float* __restrict minuend, const float* __restrict subtrahend, int64_t n,
              float* __restrict out) {
  for (int64_t i = 0; i < n; ++i) out[i] = minuend[i] - subtrahend[i];
}

}  // namespace

void UpdateRounding::Round(absl::Span<const float> before, uint64_t version,
                           absl::Span<float> parameters) {
  const auto size = static_cast<int64_t>(parameters.size());
  encoded_.resize(EncodedBytes(encoding_, size));
  version_ = version;
  float change[kBlockElements], rounded[kBlockElements];
  for (int64_t begin = 0; begin < size; begin += kBlockElements) {
    const int64_t n = std::min(kBlockElements, size - begin);
    char* const encoded = encoded_.data() + EncodedBytes(encoding_, begin);
    const absl::Span<const float> changes(change, n);
    Subtract(parameters.data() + begin, before.data() + begin, n, change);
    AddGradient(change, residual_.data() + begin, n);
    Encode(encoding_, changes, encoded);
    Decode(encoding_, {{encoded, static_cast<size_t>(EncodedBytes(encoding_, n))}},
           {rounded, changes.size()});
    KeepRest(change, rounded, n, residual_.data() + begin);
    std::copy_n(before.data() + begin, n, parameters.data() + begin);
    AddGradient(parameters.data() + begin, rounded, n);
  }
}

}  // namespace evenshard
