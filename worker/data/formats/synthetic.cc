#include "worker/data/formats/synthetic.h"

#include <algorithm>
#include <cmath>

namespace evenshard {
namespace {

// The number of places where a window into the table may start.
constexpr int64_t kWindows = 1 << 18;

// The classes' windows start as far apart as possible. Up to kWindows classes have distinct
// patterns.
int64_t PatternWindow(int64_t label, int64_t classes) {
  return label * std::max<int64_t>(kWindows / classes, 1) % kWindows;
}

}  // namespace

SyntheticDataset::SyntheticDataset(const Shape3& shape, int64_t classes, int64_t size, float noise,
                                   uint64_t seed)
    : shape_(shape),
      classes_(classes),
      size_(size),
      pattern_scale_(1 / std::sqrt(1 + noise * noise)),
      noise_scale_(noise / std::sqrt(1 + noise * noise)),
      noise_windows_(seed, "synthetic/noise"),
      table_(kWindows + shape.size()) {
  const CounterRandom values(seed, "synthetic/values");
  for (size_t i = 0; i < table_.size(); ++i) table_[i] = values.Normal(i);
}

absl::Status SyntheticDataset::Read(int64_t index, const CounterRandom* augment,
                                    absl::Span<float> image, int32_t* label) const {
  *label = static_cast<int32_t>(index % classes_);
  const float* pattern = table_.data() + PatternWindow(*label, classes_);
  const float* noise = table_.data() + noise_windows_.Below(index, kWindows);
  for (size_t i = 0; i < image.size(); ++i) {
    image[i] = pattern_scale_ * pattern[i] + noise_scale_ * noise[i];
  }
  return absl::OkStatus();
}

}  // namespace evenshard
