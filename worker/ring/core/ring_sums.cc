#include "worker/ring/core/ring_sums.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/optimizer/aggregate.h"
#include "common/wire/encoding.h"
#include "common/wire/non_finite.h"

namespace evenshard {
namespace {

// Elements that are checked and then added, few enough to stay in the processor's cache.
constexpr int64_t kCheckedElements = 8192;

// "fc6/weight element 17".
std::string ElementName(const Model& model, int64_t element) {
  const auto after =
      std::upper_bound(model.tensors().begin(), model.tensors().end(), element,
                       [](int64_t index, const Tensor& tensor) { return index < tensor.offset; });
  const Tensor& tensor = *(after - 1);
  return absl::StrCat(tensor.name, " element ", element - tensor.offset);
}

}  // namespace

absl::Status NotFinite(const Model& model, int rank, Encoding encoding, int64_t iteration,
                       int64_t element) {
  return WithKind(ErrorDetail::RUN_FAILED,
                  absl::InvalidArgumentError(absl::StrCat(
                      "worker ", rank, " pushed a gradient that is not finite", RangeOf(encoding),
                      " at iteration ", iteration, ": ", ElementName(model, element))));
}

absl::Status OutOfRange(const Model& model, absl::string_view what, Encoding encoding,
                        int64_t iteration, int64_t element) {
  return WithKind(
      ErrorDetail::RUN_FAILED,
      absl::OutOfRangeError(absl::StrCat(
          what, " leaves the range of ", encoding == FLOAT32 ? "float32" : EncodingName(encoding),
          " in the update of iteration ", iteration, ": ", ElementName(model, element))));
}

absl::Status RingSums::Check(const RingSegment& segment, int64_t iteration,
                             absl::Span<const float> gradients) const {
  const int64_t bad =
      MustBeFinite(segment) ? FindNonFinite(gradients.data() + segment.begin, segment.size) : -1;
  if (bad < 0) return absl::OkStatus();
  return NotFinite(config_.model(), rank_, encoding_, iteration, segment.begin + bad);
}

absl::Status RingSums::Add(const RingSegment& segment, int64_t iteration, const Segments& received,
                           absl::Span<float> gradients) const {
  int64_t bad = -1;
  const auto add = [&](int64_t first, const UnalignedFloat* floats, int64_t count) {
    for (int64_t begin = 0; begin < count; begin += kCheckedElements) {
      const int64_t size = std::min(kCheckedElements, count - begin);
      float* const own = gradients.data() + segment.begin + first + begin;
      const int64_t in_run =
          MustBeFinite(segment) ? FindNonFiniteSum(own, floats + begin, size) : -1;
      if (in_run >= 0 && bad < 0) bad = segment.begin + first + begin + in_run;
      if (bad < 0) AddGradient(own, floats + begin, size);
    }
  };
  ForEachDecodedRun(encoding_, received, segment.size, add);
  if (bad < 0) return absl::OkStatus();
  const bool is_own = FindNonFinite(gradients.data() + bad, 1) == 0;
  return is_own ? NotFinite(config_.model(), rank_, encoding_, iteration, bad)
                : OutOfRange(config_.model(), "the sum of the gradients", FLOAT32, iteration, bad);
}

void RingSums::Store(const RingSegment& segment, const Segments& received,
                     absl::Span<float> gradients) const {
  Decode(encoding_, received, gradients.subspan(segment.begin, segment.size));
}

absl::Status RingSums::Encode(const RingSegment& segment, int64_t iteration, bool is_own,
                              absl::Span<const float> gradients, char* out) const {
  evenshard::Encode(encoding_, gradients.subspan(segment.begin, segment.size), out);
  const auto bytes = static_cast<size_t>(EncodedBytes(encoding_, segment.size));
  const int64_t bad = FindNonFinite(encoding_, {{out, bytes}}, segment.size);
  if (bad < 0) return absl::OkStatus();
  return is_own ? NotFinite(config_.model(), rank_, encoding_, iteration, segment.begin + bad)
                : OutOfRange(config_.model(), "the sum of the gradients", encoding_, iteration,
                             segment.begin + bad);
}

}  // namespace evenshard
