#include "worker/data/formats/resize.h"

#include <algorithm>
#include <cmath>

namespace evenshard {
namespace {

// The two source pixels between which a target pixel lies, and the weight of the second one.
struct Tap {
  int64_t first = 0;
  int64_t second = 0;
  float weight = 0;
};

Tap TapOf(int64_t target, int64_t target_size, int64_t source_size) {
  const double scale = static_cast<double>(source_size) / static_cast<double>(target_size);
  const double position = std::clamp((static_cast<double>(target) + 0.5) * scale - 0.5, 0.0,
                                     static_cast<double>(source_size - 1));
  const int64_t first = static_cast<int64_t>(position);
  return {first, std::min(first + 1, source_size - 1),
          static_cast<float>(position - static_cast<double>(first))};
}

}  // namespace

ImageSize CoveringSize(const ImageSize& image, const ImageSize& box) {
  const double scale = std::max(static_cast<double>(box.height) / image.height,
                                static_cast<double>(box.width) / image.width);
  return {std::max<int64_t>(box.height, std::llround(scale * image.height)),
          std::max<int64_t>(box.width, std::llround(scale * image.width))};
}

void ResizeAndCrop(const RgbImage& image, const Crop& crop, absl::Span<float> out) {
  std::vector<Tap> columns(crop.size.width);
  for (int64_t x = 0; x < crop.size.width; ++x) {
    const int64_t target = crop.left + (crop.flip ? crop.size.width - 1 - x : x);
    columns[x] = TapOf(target, crop.resized.width, image.size.width);
  }
  const int64_t plane = crop.size.height * crop.size.width;
  for (int64_t y = 0; y < crop.size.height; ++y) {
    const Tap row = TapOf(crop.top + y, crop.resized.height, image.size.height);
    const uint8_t* upper = image.pixels.data() + row.first * image.size.width * 3;
    const uint8_t* lower = image.pixels.data() + row.second * image.size.width * 3;
    for (int64_t x = 0; x < crop.size.width; ++x) {
      const Tap& column = columns[x];
      for (int64_t channel = 0; channel < 3; ++channel) {
        const int64_t a = column.first * 3 + channel;
        const int64_t b = column.second * 3 + channel;
        const float top = upper[a] + column.weight * (upper[b] - upper[a]);
        const float bottom = lower[a] + column.weight * (lower[b] - lower[a]);
        out[channel * plane + y * crop.size.width + x] = top + row.weight * (bottom - top);
      }
    }
  }
}

}  // namespace evenshard
